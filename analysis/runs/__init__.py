"""Runs behind the tables of the papers."""
