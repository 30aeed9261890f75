"""Fires and false alarms: small trainings with a fault, and healthy ones, on seeds that no threshold was set on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import alarms
from benchmarks.trainings import FAULTS, HEALTHY, records
from cocos.monitor import detectors

ROOT = Path(__file__).parent.parent
FOUND = json.loads((ROOT / "benchmarks" / "alarms.json").read_text("utf-8"))
SEED = alarms.REPORTED.start + 10
# Steps from which on a training is recorded every tenth step here, to save time.
LONG = 100


SHORTEST = {each.detector: each for each in sorted(FAULTS, key=lambda each: -each.training.steps)}


@pytest.mark.parametrize("fault", SHORTEST.values(), ids=lambda each: each.detector)
def test_a_fault_is_said_by_its_detector(fault):
    settled = {"every": 10, "closely": 0} if fault.training.steps >= LONG else {"every": 1}
    history = records(replace(fault.training, **settled), SEED)
    assert fault.detector in alarms.first_steps(history)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["softmax, emoji", "sigmoid, learned scale", "triplets, hardest"])
def test_a_healthy_training_is_silent(family):
    history = records(replace(HEALTHY[family], every=10, closely=0), SEED)
    assert len(history) == 26 and not alarms.first_steps(history)


def test_every_detector_has_a_fault():
    assert {fault.detector for fault in FAULTS} == set(detectors.names())
    assert set(alarms.SET).isdisjoint(alarms.REPORTED) and SEED not in {*alarms.SET, *alarms.REPORTED}


def test_the_reported_numbers_are_of_these_detectors_and_trainings():
    assert FOUND["thresholds"] == alarms.thresholds()
    assert FOUND["seeds"] == list(alarms.REPORTED) and len(FOUND["seeds"]) >= 10
    assert [(row["detector"], row["fault"]) for row in FOUND["faults"]] == [(f.detector, f.fault) for f in FAULTS]
    assert list(FOUND["healthy"]) == list(HEALTHY)


def test_every_fault_fires_and_no_healthy_run_does():
    assert all(row["fired"] == row["runs"] == 10 for row in FOUND["faults"])
    healthy = list(FOUND["healthy"].values())
    assert not any(any(each["alarms"].values()) for each in healthy)
    assert all(each["alarms"].keys() == set(detectors.names()) for each in healthy)
    assert sum(each["runs"] for each in healthy) == 200
