"""Kinds of the findings of a result, which tests compare in the place of sentences."""

import xarray as xr

from cocos.counting import findings


def kinds(dataset: xr.Dataset) -> set[str]:
    """Return the kinds of all findings of a result of one loss."""
    return {finding.kind for finding in findings.of(dataset)}
