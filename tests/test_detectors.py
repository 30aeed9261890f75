"""The detectors: a sentence about a training run where its numbers show a fault, and silence about a healthy one."""

import dataclasses
import json
import math
import random
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import cocos
from benchmarks import alarms
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.monitor import detectors


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
        (["collapse.records=0"], "expected an integer of at least 1"),
        (["collapse.records=1.5"], "expected an integer of at least 1"),
        (["collapse=off", "collapse.records=2"], "give each setting once"),
        (["collapse.records=2", "collapse.records=2"], "give each setting once"),
    ],
)
def test_wrong_settings_are_one_sentence(given, said):
    with pytest.raises(InputError, match=said):
        detectors.chosen(detectors.settings(given))
    done = CliRunner().invoke(app, ["run", "run.jsonl", *(f"--detector={each}" for each in given)])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "given", [["collapse"], {"collapse": 0.9}, {"collapse": None}, 3, {"collapse": {"records": True}}]
)
def test_settings_of_python_of_another_form_are_refused(given):
    with pytest.raises(InputError, match=r"expected (a dict|False for off|an integer)"):
        detectors.chosen(given)


def test_settings_change_one_detector_and_leave_the_others():
    asked = detectors.settings(["collapse.similarity=0.5", "Collapse.records=2", "non-finite=off"])
    made = detectors.chosen(asked)
    assert detectors.load("collapse", {"similarity": 0.5, "records": 2}) in made
    assert len(made) == len(detectors.names()) - 1
    assert detectors.chosen(detectors.settings(["collapse=on"])) == detectors.chosen()


def test_fail_on_names_detectors():
    active = detectors.chosen()
    assert detectors.failing("any", active) == set(detectors.names())
    assert detectors.failing("Non-Finite, collapse", active) == {"non_finite", "collapse"}
    assert detectors.failing(None, active) == set()
    for wrong in ("colapse", "", "any,colapse"):
        with pytest.raises(InputError, match="unknown detector"):
            detectors.failing(wrong, active)
    with pytest.raises(InputError, match="--fail-on collapse: this detector is off"):
        detectors.failing("collapse", detectors.chosen({"collapse": False}))


def test_table_lists_every_detector():
    rows = detectors.table(detectors.chosen({"collapse": False}))
    assert [row["name"] for row in rows] == detectors.names()
    assert [row["name"] for row in rows if not row["on"]] == ["collapse"]


def test_a_run_is_replayed_record_by_record_with_its_widths_apart():
    history = [each | {"width": width} for each in run(600, 1, similarity=0.99) for width in (8, 16)]
    history[1::2] = [each | {"similarity": 0.1} for each in history[1::2]]
    found = detectors.replay(history, detectors.chosen())
    assert [each.step for each in found] == list(range(20, 600))
    assert "since step 0" in found[0].sentence and "or earlier" in found[-1].sentence


def test_whoever_fires_was_watching_and_whoever_watches_would_fire():
    steady = LIMITS.keys() - {"scale", "short_batch"}  # their condition is a change
    for name, (beyond, _) in LIMITS.items():
        detector, history = detectors.load(name), run(**beyond)
        for number in range(1, len(history) + 1):
            alarm, why = detector(history[:number]), detector.watches(history[:number])
            assert alarm is None or why is None, (name, number, why)
            assert name not in steady or (why is None) == (alarm is not None), (name, number, why)
    for name in steady:
        few = run(number=4, every=1, source="checkpoint", **LIMITS[name][0])
        for number in range(1, 5):
            detector = detectors.load(name)
            assert (detector.watches(few[:number]) is None) == (detector(few[:number]) is not None), (name, number)


def test_a_detector_without_its_numbers_says_which_it_lacks():
    bare = [{"step": step, "finite": True} for step in range(0, 1000, 50)]
    said = detectors.watching([bare], detectors.chosen())
    blind = {name for name, why in said.items() if why is not None and why.startswith("cannot see this loss: ")}
    assert blind >= set(detectors.names()) - {"non_finite", "not_gathered", "one_source", "underflow"}
    assert said["non_finite"] is None and said["not_gathered"] == "does not apply: one process trains"
    assert said["collapse"] == "cannot see this loss: no embeddings beside the scores"
    assert said["scale"] == "cannot see this loss: no scale that is one number"


def test_an_all_clear_names_those_who_could_not_have_fired():
    short = run(number=4, every=10, **SPREAD, similarity=0.1)
    said = detectors.summary(detectors.watching([short], detectors.chosen({"idle": False})))
    assert re.match(r"\d+ of \d+ detectors were watching; 2 begin at step 200 \(stuck, whole_batch\); ", said), said
    assert said.endswith("; 1 is off (idle)") and "cannot see this loss (" in said
    long = run(number=5, every=50, **SPREAD, similarity=0.1)
    said = detectors.watching([long], detectors.chosen())
    assert said["stuck"] is None and said["whole_batch"] is None
    assert detectors.watching([], detectors.chosen())["collapse"] == "begins with record 3"


def test_an_episode_is_one_entry_and_ends_after_twenty_silent_records():
    said = {"detector": "idle", "value": 1.0, "threshold": 0.95}
    fires = {*range(5), *range(25, 30), *range(51, 53)}  # silent for 20 records, then for 21
    history = [
        {"step": 10 * k, "alarms": [said | {"sentence": f"idle: at {10 * k}"}] if k in fires else []} for k in range(60)
    ]
    found = detectors.episodes(history)
    assert [(each["kind"], each["first"], each["last"], each["times"]) for each in found] == [
        ("idle", 0, 290, 10),
        ("idle", 510, 520, 2),
    ]
    assert [each["sentence"] for each in found] == ["idle: at 290", "idle: at 520"]
    assert detectors.episodes(history[:5])[0]["last"] == 40 and detectors.episodes([]) == []


def test_a_monitor_has_one_alarm_an_episode_as_the_command_reads_it_from_its_store(tmp_path, caplog):
    store = tmp_path / "run.jsonl"
    rows = torch.randn(8, 12, generator=torch.Generator().manual_seed(0)).repeat(4, 1)
    with cocos.Monitor("ntxent", store=store) as monitor:
        for step in range(0, 90, 5):
            monitor(rows, rows + 0, step=step)
    (alarm,) = (each for each in monitor.alarms if each["kind"] == "duplicates")
    assert (alarm["first"], alarm["last"], alarm["times"]) == (10, 85, 16)
    assert sum("duplicates: " in each for each in caplog.messages) == 1
    found = json.loads(CliRunner().invoke(app, ["run", str(store), "--json"]).stdout)
    assert [(each["kind"], each["first"], each["last"], each["sentence"]) for each in found["alarms"]] == [
        (each["kind"], each["first"], each["last"], each["sentence"]) for each in monitor.alarms
    ]
    assert found["watching"] == monitor.watching()


PAIRS = {"queries": 32, "candidates": 32, "positives": 1}
SPREAD = {"value": 3.47, "kind": "softmax", "directions": {"q2c": PAIRS | {"effective": 30.5, "idle": 0}}}
HARD = {"push_own_hard": 0.96, "push_in_batch": 0.04, "negatives_own_hard": 1, "negatives_in_batch": 31}
NAMES = ("push", "negatives")
# Numbers of a record at which a detector fires, and beside them others at which it does not.
LIMITS = {
    "collapse": ({"similarity": 0.91}, {"similarity": 0.89}),
    "stuck": (SPREAD, SPREAD | {"value": 3.3}),
    "one_candidate": (
        {"directions": {"q2c": {"candidates": 1, "positives": 1}}},
        {"directions": {"q2c": {"candidates": 2, "positives": 1}}},
    ),
    "idle": (
        {"directions": {"q2c": PAIRS | {"idle": 31, "weight_negative": 0.01}}},
        {"directions": {"q2c": PAIRS | {"idle": 32, "weight_negative": 0.9}}},
    ),
    "whole_batch": (
        {"directions": {"q2c": PAIRS | {"effective": 28}}},
        {"directions": {"q2c": PAIRS | {"effective": 27}}},
    ),
    "scale": ({"scale": [14] * 11 + [1.9]}, {"scale": [1.9] * 12}),
    "short_batch": ({"queries": [32] * 11 + [15]}, {"queries": [32] * 11 + [16]}),
    "non_finite": ({"finite": False}, {"finite": True}),
    "underflow": ({"dtype": "float16", "subnormal": 0.11}, {"dtype": "bfloat16", "subnormal": 0.9}),
    "duplicates": ({"duplicates": 2, "candidates": 32}, {"duplicates": 1, "candidates": 32}),
    "near_duplicates": (
        {"near_duplicates": 8, "duplicates": 2, "candidates": 32},
        {"near_duplicates": 8, "duplicates": 3, "candidates": 32},
    ),
    "hubs": (
        {"directions": {"q2c": PAIRS | {"hub_share": 0.31, "unpushed": 20}}},
        {"directions": {"q2c": PAIRS | {"hub_share": 0.31, "unpushed": 21}}},
    ),
    "pulled_negatives": (
        {"directions": {"q2c": PAIRS | {"pulled_negatives": 0.11, "pushed_positives": 0.4}}},
        {"directions": {"q2c": PAIRS | {"pulled_negatives": 0.09, "pushed_positives": 0}}},
    ),
    "misaligned": (
        {"directions": {"q2c": PAIRS | {"pulled_negatives": 0.5, "pushed_positives": 0.41}}},
        {"directions": {"q2c": PAIRS | {"pulled_negatives": 0.3, "pushed_positives": 0.41}}},
    ),
    "not_gathered": (
        {"world": 2, "gathered": False, "queries": 32, "candidates": 32},
        {"world": 2, "gathered": False, "queries": 32, "candidates": 64},
    ),
    "lost_gradient": ({"lost": 0.1}, {"lost": 0.0}),
    "detached": ({"unreached": 0.11, "unreached_modules": "text"}, {"unreached": 0.09}),
    "no_positives": (
        {"directions": {"s2s": PAIRS | {"positives": 0, "unpushed": 32}}},
        {"directions": {"s2s": PAIRS | {"positives": 0.1, "unpushed": 32}}},
    ),
    "mispaired": (
        {"queries": 32, "outranked": 0.47, "agreement": 0.04, "directions": {"q2c": PAIRS}},
        {"queries": 32, "outranked": 0.47, "agreement": 0.06, "directions": {"q2c": PAIRS}},
    ),
    "one_source": (
        {"directions": {"q2c": PAIRS | HARD}},
        {"directions": {"q2c": PAIRS | HARD | {"push_own_hard": 0.94}}},
    ),
}


def test_every_detector_has_its_limits_here():
    assert sorted(LIMITS) == detectors.names()


@pytest.mark.parametrize("name", LIMITS)
def test_a_detector_fires_beyond_its_threshold_and_is_silent_before(name):
    beyond, before = (run(**numbers) for numbers in LIMITS[name])
    alarm = fired(beyond)[name]
    assert alarm.step == 550 and alarm.detector == name
    assert name not in fired(before)
    assert name not in fired(beyond, **{name: False})
    json.dumps(dataclasses.asdict(alarm), allow_nan=False)


@pytest.mark.parametrize("name", LIMITS)
def test_a_sentence_has_its_number_its_threshold_and_something_to_try(name):
    alarm = fired(run(**LIMITS[name][0]))[name]
    start, _, said = alarm.sentence.partition(": ")
    assert start == name and "step 550" in said or "since step 0" in said
    numbers = [float(each) for each in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", said)]
    for wanted in (alarm.value, alarm.threshold):
        found = any(abs(each - factor * wanted) <= 0.006 * abs(each) for each in numbers for factor in (1, 100))
        assert found or name == "non_finite", (wanted, said)
    assert ". " in said
    assert said[0].islower() or said[0].isdigit() or said.startswith("NaN")
    assert "\n" not in said and len(said) < 400


@pytest.mark.parametrize(
    "name", sorted(LIMITS.keys() - {"non_finite", "one_candidate", "not_gathered", "scale", "mispaired"})
)
def test_a_condition_must_last(name):
    beyond, before = (run(**numbers) for numbers in LIMITS[name])
    lasting = name not in {"short_batch"}
    assert (name in fired([*before[:-1], beyond[-1]])) is not lasting
    assert name not in fired([*beyond[:-1], before[-1]])


@pytest.mark.parametrize("name", ["collapse", "stuck", "whole_batch", "hubs", "one_source"])
def test_a_detector_holds_back_in_the_warm_up(name):
    beyond, warmup = LIMITS[name][0], detectors.load(name).warmup
    early, late = (run(every=1, number=number, **beyond) for number in (warmup, warmup + 1))
    assert name not in fired(early) and name in fired(late)
    assert name in fired(early, **{name: {"warmup": 3}})


@pytest.mark.parametrize("name", ["collapse", "stuck", "idle", "whole_batch", "hubs", "one_source"])
def test_two_checkpoints_are_enough(name):
    history = run(number=2, every=1, source="checkpoint", **LIMITS[name][0])
    assert name in fired(history)


def test_the_sources_of_the_push_are_compared_with_their_numbers():
    def side(**parts):
        numbers = {
            f"{name}_{key}": value for key, pair in parts.items() for name, value in zip(NAMES, pair, strict=True)
        }
        return run(directions={"q2c": PAIRS, "c2q": PAIRS | numbers})

    alarm = fired(side(in_batch=(0.999, 31), own_hard=(0.001, 1)))["one_source"]
    assert alarm.value == 0.999
    assert "cocos audit" in fired(side(in_batch=(0.01, 31), own_hard=(0.99, 1)))["one_source"].sentence
    others = fired(side(in_batch=(0.01, 31), query_query=(0.01, 31), candidate_query=(0.98, 31)))["one_source"]
    assert others.value == 0.98
    for healthy in (
        side(in_batch=(0.97, 31), own_hard=(0.03, 1)),  # as much as a random negative has
        side(in_batch=(0.5, 31), own_hard=(0.5, 1)),
        side(in_batch=(1.0, 31)),
        side(in_batch=(0.99, 0), own_hard=(0.01, 1)),
    ):
        assert "one_source" not in fired(healthy)


def test_a_short_batch_and_a_fast_scale_are_nothing_among_checkpoints():
    assert "short_batch" not in fired(run(source="checkpoint", **LIMITS["short_batch"][0]))
    assert "scale" in fired(run(scale=[14] * 11 + [99.5], kind="softmax"))
    assert "scale" not in fired(run(source="checkpoint", scale=[14] * 11 + [99.5], kind="softmax"))
    assert "scale" not in fired(run(scale=[14] * 11 + [120], kind="sigmoid"))
    assert "scale" in fired(run(source="checkpoint", scale=[14] * 11 + [102], kind="softmax"))
    assert "scale" not in fired(run(every=100, scale=[14] * 11 + [99.5], kind="softmax"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("softmax", math.log(32)), ("softmax", 2 * 32 * math.log(32)), ("sigmoid", math.log(2)), ("sigmoid", 4.45)]
    + [("hinge", 2 * 32 * 0.2), ("hinge", 0.2), ("hinge", 31 * 0.2)],
)
def test_a_loss_stands_at_the_value_of_equal_scores(kind, value):
    both = {name: PAIRS | {"effective": 30.5, "unpushed": 0} for name in ("q2c", "c2q")}
    assert "stuck" in fired(run(kind=kind, value=value * 1.01, directions=both))
    assert "stuck" not in fired(run(kind=kind, value=value * 1.1, directions=both))
    uneven = {name: each | {"effective": 12, "unpushed": 1} for name, each in both.items()}
    assert "stuck" not in fired(run(kind=kind, value=value, directions=uneven))


def test_the_margin_of_a_record_goes_before_that_of_the_detector():
    direction = {"q2c": PAIRS | {"idle": 0, "effective": 1}}
    assert "stuck" in fired(run(kind="hinge", value=0.5, margin=0.5, directions=direction))
    assert "stuck" not in fired(run(kind="hinge", value=0.5, directions=direction))
    assert "stuck" in fired(run(kind="hinge", value=0.5, directions=direction), stuck={"margin": 0.5})


def test_a_process_that_pushes_its_own_candidates_alone_is_said():
    world = {"world": 2, "gathered": True, "queries": 32, "candidates": 64}
    assert "not_gathered" in fired(run(directions={"q2c": PAIRS | {"push_own": 1.0}}, **world))
    assert "not_gathered" not in fired(run(directions={"q2c": PAIRS | {"push_own": 0.5}}, **world))
    assert "not_gathered" not in fired(run(**world | {"world": 1, "gathered": False}))


def test_wrong_pairs_are_four_times_those_behind_three_quarters_of_the_negatives():
    part = {"outranked": 0.2, "behind": 0.25, "far_behind": 0.1, "ahead": 0.6}
    assert fired(run(queries=32, directions={"q2c": PAIRS}, **part))["mispaired"].value == pytest.approx(0.4)


def test_gradscaler_may_overflow_for_a_while():
    assert "non_finite" not in fired(run(number=9, finite=False, dtype="float16", value=2.0))
    assert "non_finite" in fired(run(number=10, finite=False, dtype="float16", value=2.0))
    assert "non_finite" in fired(run(number=1, finite=False, dtype="float16"))


def test_what_another_detector_says_better_is_left_to_it():
    unknown = {"q2c": PAIRS | {"unpushed": 32, "relative": 0}}  # of a loss whose unit is unknown
    assert fired(run(directions=unknown)).keys() == {"idle"}
    light = {
        "q2c": PAIRS | {"idle": 32, "weight_negative": 0.03}
    }  # of a softmax, whose weights are never 0, that is much
    assert "idle" in fired(run(directions=light, kind="hinge")) and "idle" not in fired(run(directions=light))
    pushed = {"q2c": PAIRS | {"unpushed": 30, "relative": 0, "idle": 0}}
    assert not fired(run(directions=pushed))
    for similarity, cure in ((0.95, "`collapse` first"), (0.1, "a smaller temperature")):
        even = {"q2c": PAIRS | {"effective": 28}}
        assert cure in fired(run(similarity=similarity, directions=even))["whole_batch"].sentence
    one_side = {"q2c": PAIRS | {"positives": 0, "unpushed": 32}, "c2q": PAIRS}
    assert "no_positives" not in fired(run(directions=one_side))
    zero = {"dtype": "float16", "kind": "softmax", "zero": 1.0}  # right where the loss is 0
    assert "underflow" in fired(run(value=1.0, **zero)) and "underflow" not in fired(run(value=0.001, **zero))
    alone = {"q2c": {"queries": 1, "candidates": 1, "positives": 1, "idle": 1, "weight_negative": 0}}
    assert fired(run(directions=alone)).keys() == {"one_candidate"}
    assert fired(run(near_duplicates=32, candidates=32, similarity=0.99)).keys() == {"collapse"}
    assert fired(run(finite=False, directions={"q2c": PAIRS | {"idle": 32}})).keys() == {"non_finite"}
    pushed = {"q2c": PAIRS | {"pulled_negatives": 1, "pushed_positives": 1}}
    assert fired(run(directions=pushed)).keys() == {"misaligned"}
    known = {"q2c": PAIRS | {"positives": 1.5}}
    assert not fired(run(candidates=32, duplicates=16, near_duplicates=32, directions=known))
    assert not fired(run(candidates=32, near_duplicates=16, directions=known))
    assert not fired(run(candidates=32, near_duplicates=32, directions={"s2s": PAIRS}))
    assert fired(run(candidates=32, duplicates=18, directions=known)).keys() == {"duplicates"}
    few = {"q2c": PAIRS | {"hub_share": 0.51, "unpushed": 0, "candidates": 6}}
    assert not fired(run(directions=few)) and fired(run(directions=few), hubs={"times": 3}).keys() == {"hubs"}


def test_records_of_a_stranger_raise_nothing():
    rng = random.Random(0)
    values = [0, 1, -1, 1e308, -1e308, 1e-308, math.nan, math.inf, None, True, "1", [], {}, 10**400, 3.5, "softmax"]
    values += ["hinge", "sigmoid", "float16", "checkpoint", False, 32]
    keys = "step value kind queries candidates scale similarity duplicates near_duplicates subnormal zero lost "
    keys += "width source dtype world gathered finite margin similarity_negative"
    inner = "queries candidates positives idle effective hub_share pulled_negatives pushed_positives push_own "
    inner += "weight_negative contributing push_in_batch push_own_hard negatives_in_batch negatives_own_hard "
    inner += "relative unpushed"
    for _ in range(400):
        history = []
        for _ in range(rng.randint(1, 12)):
            record = {key: rng.choice(values) for key in keys.split() if rng.random() < 0.8}
            direction = {key: rng.choice(values) for key in inner.split() if rng.random() < 0.8}
            record["directions"] = rng.choice([
                {"q2c": direction},
                {"s2s": direction, "c2q": 3},
                [],
                None,
                {3: direction},
            ])
            history.append(record)
        for alarm in detectors.replay(history, detectors.chosen()):
            json.dumps(dataclasses.asdict(alarm), allow_nan=False)


def test_the_page_has_the_table_of_the_shelf():
    page = Path(__file__).parent.parent / "docs" / "howto" / "detectors.md"
    assert "\n".join(alarms.shelf_lines()) in page.read_text("utf-8"), "alarms.shelf_lines() has the rows"


def test_a_history_that_grows_is_read_as_any_other():
    history, chosen, fired = detectors.Growing(), detectors.chosen(), set()
    for step in range(3 * 256):
        alike = step not in {2, 5, 6, 40, 700}
        history.append({"step": step, "similarity": 0.99 if alike else 0.1, "value": 1.0 if step % 9 else float("nan")})
        found = detectors.check(history, chosen)
        assert found == detectors.check([*history], chosen)
        fired |= {each.detector for each in found}
    assert fired == {"collapse", "non_finite"}
    assert "or earlier" in detectors.check(history[:600], chosen)[0].sentence
