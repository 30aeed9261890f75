"""The detectors: a sentence about a training run where its numbers show a fault, and silence about a healthy one."""

import json

import pytest
from typer.testing import CliRunner

from cocos import detectors
from cocos.commands import app
from cocos.commands._options import DetectorOptions
from cocos.errors import InputError


def run(number=12, every=50, **numbers):
    """Records with the same numbers; a list gives one value per record."""
    return [
        {"step": every * k} | {name: each[k] if isinstance(each, list) else each for name, each in numbers.items()}
        for k in range(number)
    ]


def fired(history, **settings):
    """Sentences at the last record, by detector."""
    return {each.detector: each for each in detectors.check(history, detectors.chosen(settings))}


def test_a_loss_that_is_not_finite_is_said_at_once():
    for record in ({"finite": False}, {"value": float("nan")}, {"value": float("inf")}):
        assert fired([{"step": 7} | record])["non_finite"].step == 7
    assert not fired([{"step": 7, "finite": True, "value": 3.0}])


@pytest.mark.parametrize("text", ["off", "collapse", "collapse=", "=off", "collapse=maybe", "collapse.=1", ".x=1", ""])
def test_a_setting_of_another_form_is_refused(text):
    with pytest.raises(InputError, match="write it as NAME=off or NAME.THRESHOLD=VALUE"):
        detectors.settings([text])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["colapse=off"], "unknown detector 'colapse': did you mean 'collapse'"),
        (["collapse.similarty=1"], "unknown threshold of collapse 'similarty': did you mean 'similarity'"),
        (["collapse.similarity=2"], r"threshold collapse.similarity: '2', expected a number from -1 to 1"),
        (["collapse.similarity=nan"], "expected a number from -1 to 1"),
        (["collapse.records=0"], "expected a whole number of at least 1"),
        (["collapse.records=1.5"], "expected a whole number of at least 1"),
        (["collapse=off", "collapse.records=2"], "give each setting once"),
        (["collapse.records=2", "collapse.records=2"], "give each setting once"),
    ],
)
def test_wrong_settings_are_one_sentence(given, said):
    with pytest.raises(InputError, match=said):
        DetectorOptions(given)
    done = CliRunner().invoke(app, ["detectors", *(f"--detector={each}" for each in given)])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "given", [["collapse"], {"collapse": 0.9}, {"collapse": None}, 3, {"collapse": {"records": True}}]
)
def test_settings_of_python_of_another_form_are_refused(given):
    with pytest.raises(InputError, match=r"expected (a dict|False for off|a whole number)"):
        detectors.chosen(given)


def test_settings_change_one_detector_and_leave_the_others():
    asked = detectors.settings(["collapse.similarity=0.5", "Collapse.records=2", "non-finite=off"])
    made = detectors.chosen(asked)
    assert detectors.load("collapse", {"similarity": 0.5, "records": 2}) in made
    assert len(made) == len(detectors.names()) - 1
    assert detectors.chosen(detectors.settings(["collapse=on"])) == detectors.chosen()


def test_the_exit_code_is_that_of_the_detectors_that_are_named():
    assert DetectorOptions(fail_on="any").code(["collapse"]) == 1
    assert DetectorOptions(fail_on="any").code([]) == 0
    assert DetectorOptions(fail_on="Non-Finite, collapse").code(["non_finite"]) == 1
    assert DetectorOptions(fail_on="non_finite").code(["collapse"]) == 0
    assert DetectorOptions().code(["collapse"]) == 0
    for wrong, said in (("colapse", "did you mean 'collapse'"), ("", "unknown detector"), ("collapse,,any", "unknown")):
        with pytest.raises(InputError, match=said):
            DetectorOptions(fail_on=wrong)
    with pytest.raises(InputError, match="--fail-on collapse: this detector is off"):
        DetectorOptions(["collapse=off"], "collapse")


def test_the_command_lists_every_detector():
    done = CliRunner().invoke(app, ["detectors", "--json", "--detector", "collapse=off"])
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == detectors.names()
    assert [row["name"] for row in rows if not row["on"]] == ["collapse"]
    assert all(name in CliRunner().invoke(app, ["detectors"]).stdout for name in detectors.names())


def test_a_run_is_replayed_record_by_record_with_its_widths_apart():
    history = [each | {"width": width} for each in run(600, 1, similarity=0.99) for width in (8, 16)]
    history[1::2] = [each | {"similarity": 0.1} for each in history[1::2]]
    found = detectors.replay(history, detectors.chosen())
    assert [each.step for each in found] == list(range(20, 600))
    assert "since step 0" in found[0].sentence and "or earlier" in found[-1].sentence
