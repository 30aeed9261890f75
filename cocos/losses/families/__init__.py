"""Formulas that several losses share."""
