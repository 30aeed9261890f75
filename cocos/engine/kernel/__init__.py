"""The compiled kernel: C that is built on first use (`build`), and its structs as Python sees them (`structs`)."""
