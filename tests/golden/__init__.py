"""The golden comparison: numbers of fixed calls, stored once, that every later state of the package must repeat."""
