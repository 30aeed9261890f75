"""Known bugs of real libraries, re-created from public threads, and what `verify --same-as` says of each."""
