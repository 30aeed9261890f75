"""Trainings of the studies are kept one by one, go on where they stopped, and are compared to the last digit."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

from analysis import runs
from analysis.runs.kept import kept
from cocos.base.errors import InputError


@dataclass(frozen=True)
class Square:
    """A job that is done in no time."""

    number: int

    @property
    def key(self):
        return f"square of {self.number}"


def row(job):
    return {"value": job.number**2}


def test_a_run_goes_on_where_it_stopped_and_does_nothing_twice(tmp_path):
    file, said = tmp_path / "some" / "squares.jsonl", []
    file.parent.mkdir()
    line = json.dumps({"key": "square of 2", "seconds": 1.0, "row": {"value": -1}})
    file.write_text(f"{line}\n{line.replace('2', '3')[:30]}")  # the second line was cut off
    planned = [Square(number) for number in (2, 3, 4)]
    found = runs.done(planned, row, file, 1, said.append)
    assert [found[job.key]["row"]["value"] for job in planned] == [-1, 9, 16]
    assert said[0] == "squares: 3 runs, 1 done before" and said[-1].startswith("squares: 2 of 2 in")
    assert all(found[job.key]["seconds"] >= 0 for job in planned)
    before = file.read_bytes()
    assert runs.done(planned, row, file, 1, said.append) == found and file.read_bytes() == before


def test_a_single_run_is_kept_by_its_key(tmp_path):
    file, calls = tmp_path / "rows.jsonl", []

    def run():
        calls.append(1)
        return {"value": len(calls)}

    assert [kept(file, key, run)["value"] for key in ("a", "b", "a", "b")] == [1, 2, 1, 2]


def test_numbers_are_compared_to_the_last_digit():
    written = xr.Dataset({"one": 1.0, "many": ("step", [np.nan, 2.0, 3.0]), "left": 7.0})
    assert runs.differing({"one": 1.0, "many": [np.nan, 2.0, 3.0]}, written) == ([], 4)
    lines, numbers = runs.differing({"one": 1.0, "many": [0.0, 2.0, 3.0 + 2**-51]}, written)
    assert numbers == 4 and [line.partition(":")[0] for line in lines] == ["many [0]", "many [2]"]
    assert runs.chosen("squares", "ab", 1) == "b"
    with pytest.raises(InputError, match="run 2: squares has 2 runs, expected 0 to 1"):
        runs.chosen("squares", "ab", 2)
