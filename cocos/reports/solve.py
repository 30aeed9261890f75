"""Table of the value that gives a wanted effective number of negatives."""

import xarray as xr

from cocos import measures
from cocos.reports import summary
from cocos.reports.layout import Table, following, given


def table(data: xr.Dataset) -> Table:
    """Write the value of the parameter, and the effective number that it gives in each direction."""
    found = measures.document("solve", data)
    parameter, columns = found["parameter"], found["directions"]
    rows = (
        (f"{parameter} (its own: {found['own']:g})", f"{found['value']:.6g}", *[""] * (len(columns) - 1)),
        ("effective number of negatives", *(f"{number:.4g}" for number in columns.values())),
    )
    value = f"{found['value']:.6g}"
    parameters = found["loss"]["parameters"] | {parameter: value}
    step = following(data.attrs, "count", {"loss": found["loss"]["name"], "param": given(parameters)})
    first = f"{parameter} {value} gives {found['effective']:.5g} effective negatives (wanted: {found['target']:g})."
    notes = (f"{len(found['tried'])} values were tried, until the mean of the directions was {found['effective']:.5g}",)
    return Table(("", *columns), rows, (first, *summary.about(data)), notes, typed=step)
