"""The compiled kernel: C built on first use (`build`), and its structs as Python classes (`structs`)."""
