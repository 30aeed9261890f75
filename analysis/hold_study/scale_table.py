"""The table of the trainings of the third part: dims run and tenth, in the order of the plan."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from analysis.hold_study.scale_plan import TENTHS, Trial
from analysis.hold_study.scale_training import LABELS, PATHS
from cocos import results

__all__ = ["dataset"]


def dataset(part: str, planned: Sequence[Trial], rows: Mapping[str, dict[str, Any]]) -> xr.Dataset:
    """Label the rows of a part.

    Args:
        part: `layers` or `towers`.
        planned: its trainings.
        rows: `row` and `seconds` by the key of each.
    """
    found = [rows[each.key]["row"] for each in planned]
    made: dict[str, tuple] = {"tenth": ("tenth", list(range(TENTHS)), "tenth of the training", "tenths")}
    made |= {name: ("run", np.array([each[name] for each in found]), *label) for name, label in LABELS.items()}
    made |= {
        name: (("run", "tenth"), np.array([each[name] for each in found]), *label) for name, label in PATHS.items()
    }
    made["seconds"] = ("run", [rows[each.key]["seconds"] for each in planned], "processor time of the run", "s")
    data = results.labelled(made, results.versions() | {"title": f"Trainings of the second study: {part}"})
    about = {
        name: [getattr(each, name) for each in planned] for name in ("cell", "part", "score", "loss", "kind", "seed")
    }
    about["start"] = [each.temperature for each in planned]
    return data.assign_coords({name: ("run", np.array(values)) for name, values in about.items()})
