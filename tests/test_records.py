"""The store of a training run: one line per record; whatever kills the run, at most the last record is lost."""

import json
import os
import random
import signal
import sys
import time

import numpy as np
import pytest

import children
from cocos import results
from cocos.base.errors import InputError
from cocos.monitor import detectors, records

HEADER = {"cocos": "0.1.0", "loss": "ntxent", "loss_parameters": "{}", "eps": 0.01, "directions": ["q2c", "c2q"]}
# A run that records without end, as fast as it can.
ENDLESS = """
import itertools, sys
from cocos.monitor import records
store = records.Store(sys.argv[1], {"cocos": "0.1.0", "loss": "ntxent", "loss_parameters": "{}", "eps": 0.01})
for step in itertools.count(int(sys.argv[2])):
    store.append({"step": step, "call": step, "directions": {"q2c": {"contributing": step / 3} | dict.fromkeys(
        map(str, range(100)), 0.1)}})
    print(step, flush=True)
"""
# Times that a run is killed; COCOS_KILLS=50 for as many as the documentation tells.
KILLS = int(os.environ.get("COCOS_KILLS", "2"))


def record(step, contributing=1.0, **more):
    return {"step": step, "call": step, "directions": {"q2c": {"contributing": contributing}}} | more


def written(path, *steps, header=HEADER):
    store = records.Store(path, header)
    for step in steps:
        store.append(record(step))
    store.close()
    return path


def steps_of(path):
    return [each["step"] for each in records.read(path).records]


def test_what_was_appended_is_read(tmp_path):
    store = records.Store(tmp_path / "run.jsonl", HEADER)
    given = [record(0, 2.5, width=8), record(50, 1.0, width=8, scale=20.0)]
    for each in given:
        store.append(each)
        assert list(records.read(store.path).records) == given[: given.index(each) + 1]  # before the file is closed
    store.close()
    store.close()
    found = records.read(store.path)
    assert found.header == HEADER
    data = results.open(store.path)
    assert data["step"].values.tolist() == [0, 50] and data["contributing"].sel(direction="q2c").values.tolist() == [
        2.5,
        1.0,
    ]
    assert np.isnan(data["scale"].values[0]) and data["scale"].values[1] == 20
    assert data.attrs["loss"] == "ntxent" and data["contributing"].attrs["units"] == "candidates"


def test_a_run_that_is_killed_loses_at_most_its_last_record(tmp_path):
    path, begin, seconds = tmp_path / "run.jsonl", 0, random.Random(0)
    for _ in range(KILLS):
        with children.started(sys.executable, "-c", ENDLESS, path, begin) as process:
            process.stdout.readline()
            time.sleep(seconds.uniform(0, 0.1))
            os.kill(process.pid, signal.SIGKILL)
            said = [begin, *map(int, process.stdout.read().split())]
        found = steps_of(path)
        assert found == list(range(len(found))) and len(found) >= said[-1] + 1
        begin = len(found)
    assert begin > KILLS
    assert len(results.open(path)["step"]) == begin


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_never_finished_is_dropped_and_a_resumed_run_goes_on(tmp_path, cut):
    path = written(tmp_path / "run.jsonl", 0, 1, 2)
    path.write_bytes(path.read_bytes()[:-cut])
    assert steps_of(path) == ([0, 1] if cut > 1 else [0, 1, 2])
    written(path, 2, 3)
    assert steps_of(path) == [0, 1, 2, 3]


def test_a_header_that_was_never_finished_is_written_again(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(json.dumps(HEADER, separators=(",", ":")).encode()[:30])
    with pytest.raises(InputError, match="it has no header"):
        records.read(path)
    assert steps_of(written(path, 0, 1)) == [0, 1]


def test_a_resumed_run_supersedes_the_steps_from_its_first_one(tmp_path):
    path = written(tmp_path / "run.jsonl", 0, 50, 100, 150)
    assert records.Store(path, HEADER).earlier == 150
    assert steps_of(written(path, 100, 110)) == [0, 50, 100, 110]
    assert steps_of(written(path)) == [0, 50, 100, 110]  # a run without records says nothing


@pytest.mark.parametrize(
    "content, said",
    [
        (b"step,contributing\n1,2\n", "begins without a header"),
        (b'{"a": 1}\n', "begins without a header"),
        (b"", "has no header"),
        (b'{"cocos":"1"}\nfoo\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":"1"}\nfoo\nbar\n', "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":true}\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":1,"alarms":3}\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":1,"call":[]}\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":1,"width":"a"}\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":%d}\n{"step":1}\n' % 2**63, "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":1,"directions":[]}\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":"1"}\n{"step":1,"width":[]}\n{"step":1}\n', "line 2 is no record"),
        (b'{"cocos":1}\n{"step":1}\n', "line 1 is no record"),
        (b'{"cocos":1,"step":1}\n{"step":1}\n', "line 1 is no record"),
        (b'{"cocos":"1"}\n' + b"[" * 2**20, "a line has 1,048,576 bytes or more"),
    ],
)
def test_a_file_that_is_no_store_ends_in_a_sentence(tmp_path, content, said):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        results.open(path)


@pytest.mark.parametrize(
    "name, said",
    [
        ("run.json", "suffix '.json', expected .jsonl"),
        ("nowhere/run.jsonl", "there is no folder"),
        ("folder.jsonl", "is no regular file"),
        ("a\0b.jsonl", "null"),
        ("x" * 300 + ".jsonl", "too long"),
    ],
)
def test_a_path_that_cannot_be_a_store_is_refused_before_the_training(tmp_path, name, said):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(InputError, match=said):
        records.Store(tmp_path / name, HEADER)
    with pytest.raises(InputError, match="expected a path like"):
        records.Store(3, HEADER)


@pytest.mark.parametrize("name, value", [("loss", "triplet"), ("loss_parameters", '{"a": 1}'), ("eps", 0.1)])
def test_a_store_of_another_run_is_refused(tmp_path, name, value):
    path = written(tmp_path / "run.jsonl", 0)
    with pytest.raises(InputError, match=f"has records with {name} .* give this run the same {name}"):
        records.Store(path, HEADER | {name: value})


def test_several_widths_are_a_dimension_and_several_records_a_step_stay(tmp_path):
    store = records.Store(tmp_path / "run.jsonl", HEADER)
    for call, step in enumerate((0, 0, 1)):
        for width in (64, 16):
            store.append(record(step, call + width / 100, width=width) | {"call": call})
    data = results.open(store.path)
    assert data["step"].values.tolist() == [0, 0, 1] and data["width"].values.tolist() == [64, 16]
    assert data["contributing"].dims == ("step", "width", "direction")
    assert data["contributing"].isel(step=1).sel(width=16, direction="q2c") == 1.16


def test_a_number_beyond_every_float_is_unknown(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(f'{json.dumps(HEADER)}\n{{"step":1,"similarity":1{"0" * 400},"value":2}}\n')
    data = results.open(path)
    assert "similarity" not in data and data["value"].item() == 2
    assert not detectors.replay(records.read(path).records, detectors.chosen())


def test_names_for_a_tracker():
    about = {"step": 3, "width": 64, "scale": 20.0, "alarms": [{}, {}]}
    found = about | {"directions": {"q2c": {"contributing": 2.0}, "c2q": {"contributing": 3.0}}}
    named = records.log_names(found, ("q2c", "c2q"), 64)
    assert named == {
        "cocos/scale": 20,
        "cocos/contributing": 2,
        "cocos/c2q/contributing": 3,
        "cocos/alarm": 2,
    }
    assert records.log_names(found, ("q2c", "c2q"), 128).keys() == {
        name.replace("cocos/", "cocos/width_64/") for name in named
    }
    assert records.log_names({"step": 1, "finite": False}, (), None) == {"cocos/alarm": 0}
