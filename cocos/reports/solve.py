"""Table of the value that gives a wanted effective number of negatives."""

import xarray as xr

from cocos import measures
from cocos.reports import summary
from cocos.reports.layout import Table
from cocos.sampling import DEFAULTS


def table(data: xr.Dataset) -> Table:
    """Write the value of the parameter, and the effective number that it gives in each direction."""
    found = measures.document("solve", data)
    parameter, columns = found["parameter"], found["directions"]
    rows = (
        (f"{parameter} (its own: {found['own']:g})", f"{found['value']:.6g}", *[""] * (len(columns) - 1)),
        ("effective number of negatives", *(f"{number:.4g}" for number in columns.values())),
    )
    given = found["loss"]["parameters"] | {parameter: f"{found['value']:.6g}"}
    options = "".join(f" -p {name}={value}" for name, value in given.items())
    options += "".join(
        f" --{name.replace('_', '-')} {data.attrs[name]}"
        for name in ("batch_size", "seed")
        if data.attrs[name] != DEFAULTS[name]
    )
    notes = (
        f"{len(found['tried'])} values were tried, until the mean of the directions was {found['effective']:.5g}",
        f'count with it: --loss "{found["loss"]["name"]}"{options}',
    )
    return Table(("", *columns), rows, summary.about(data), notes)
