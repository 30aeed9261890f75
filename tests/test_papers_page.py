"""docs/papers.md: every command that it names is one, and its comparison with the papers is that of the data."""

import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import cocos
from analysis import __main__ as analysis
from analysis.tables import PAPER_TABLES
from cocos.cli import app
from cocos.counting.statistics import paired

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`((?:cocos|python -m analysis) [^`]+)`", PAGE)))
# Paper, statement, table of the runs, place of the published number, settings and column of ours.
COMPARED = [
    ("slides, Table 1", "rsum, SH minus triplet (VSE++)", "towers", "1", "triplet_sh", "triplet", "rsum"),
    ("slides, Table 1", "rsum, NT-Xent minus triplet (VSE++)", "towers", "1", "ntxent", "triplet", "rsum"),
    ("slides, Table 1", "rsum, SmoothAP minus triplet (VSE++)", "towers", "1", "smoothap", "triplet", "rsum"),
    *(
        ("Veit & Wilber, Table 1", f"{column}, CE-Softmax minus Sampled Softmax", "cross_example", "cross_example",
         "ce_softmax", "sampled_softmax", column)
        for column in ("PR-AUC", "R@1", "+ distractors R@1")
    ),
    *(
        ("DeMoor & Prevost, Table III", f"{column}, {name} minus t", "proxies", "III", name, "t", column)
        for column, name in (("R@1", "warp, α = 7.75"), ("R@1", "t²"), ("R@1", "√t"), ("R@1", "1.1t"), ("R@1", "2t"),
                             ("R@1", "warp, α = 50"), ("AvgDTP", "2t"), ("AvgDTP", "t²"))
    ),
    ("DeMoor & Prevost, Table IV", "R@1 under Gaussian noise, warped minus regular", "proxies", "IV",
     "Warped Softmax", "Regular Softmax", "Gaussian noise"),
]  # fmt: skip


@cache
def of_runs(file):
    return cocos.results.open(ROOT / "analysis" / "runs" / f"{file}.nc")


def ours(file, table, setting, column):
    """Value of each seed of a setting."""
    data = of_runs(file)
    if "table" in data.coords:
        data = data.isel(run=data["table"].values == table)
    names = data["config" if table in {"III", "IV"} else "family"].values
    kept = names == setting
    if table == "IV":
        kept &= data["corruption"].values == column
    elif "learning_rate" in data.coords:  # the rate of all settings, not those that were tried for one
        kept &= np.array(["rate=" not in str(name) for name in data["config"].values])
    one = data.isel(run=kept)
    values = one["R@1" if table == "IV" else column.removeprefix("+ distractors ")]
    if "distractors" in values.dims:
        values = values.sel(distractors="with" if column.startswith("+") else "without").squeeze("direction")
    return dict(zip(one["seed"].values.tolist(), values.values.tolist(), strict=True))


def published(table, setting, column):
    """The first printed value of a loss, or that of a row by its name."""
    rows = PAPER_TABLES[table].printed["rows"]
    if table == "IV":
        return next(row for row in rows if row["label"] == column)["values"][setting][0]
    return next(row for row in rows if setting in (row.get("loss"), row.get("of")))["values"][column][0]


def row(paper, said, file, table, first, second, column):
    """A row of the page."""
    one, other = (ours(file, table, setting, column) for setting in (first, second))
    seeds = sorted(one.keys() & other.keys())
    found = paired([one[seed] for seed in seeds], [other[seed] for seed in seeds])
    printed = published(table, first, column) - published(table, second, column)
    same = np.sign(printed) == np.sign(found.mean)
    verdict = "not resolvable" if found.low <= 0 <= found.high else "repeated" if same else "no, the opposite"
    between = f"[{found.low:+.2f}, {found.high:+.2f}]"
    return f"| {paper} | {said} | {printed:+.2f} | {found.mean:+.2f} {between}, n = {len(seeds)} | {verdict} |"


@pytest.mark.parametrize("compared", COMPARED, ids=lambda each: f"{each[3]}, {each[1]}")
def test_a_comparison_with_a_paper_is_that_of_the_data(compared):
    assert row(*compared) in PAGE


@pytest.mark.parametrize("alpha", ["50", "25", "7.75"])
def test_where_embeddings_rest_under_the_warp_is_that_of_the_data(alpha):
    name = f"warp, α = {alpha}"
    values = list(ours("proxies", "III", name, "AvgDTP").values())
    found = paired(values, [float(alpha)] * len(values))
    shown = (
        f"{np.mean(values):.2f} [{float(alpha) + found.low:.2f}, {float(alpha) + found.high:.2f}], n = {len(values)}"
    )
    printed = published("III", name, "AvgDTP")
    start = f"| DeMoor & Prevost, Table III | AvgDTP, warp with α = {alpha} | {printed:.2f} | {shown} | "
    assert start in PAGE, start


@pytest.mark.parametrize("command", NAMED)
def test_a_command_that_the_page_names_is_one(command):
    program = app if command.startswith("cocos") else analysis.app
    name, *words = shlex.split(command.replace("python -m analysis", "cocos").replace("FILE...", "FILE"))[1:]
    get_command(program).get_command(None, name).make_context(name, words, resilient_parsing=False)


def test_the_page_has_every_table_and_no_row_without_a_command_or_a_reason():
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    for line in rows:
        if len(line) >= 2 and line[1].startswith("none"):
            assert len(line) == 3 and len(line[2]) > 20, line
    for name in PAPER_TABLES:
        assert re.search(rf"python -m analysis table {name}\b", PAGE), name
    for number in range(1, 13):  # figures of DeMoor & Prevost
        assert any(number in numbers(line[0]) for line in rows if line[0].startswith("Fig")), number


def numbers(item):
    """Numbers of figures in an item, as `Figs. 6 to 8` and `Figs. 2 and 4`."""
    found = [
        int(each) for each in re.findall(r"Figs?\. (\d+)|(?<= and )(\d+)|(?<= to )(\d+)", item) for each in each if each
    ]
    return range(found[0], found[1] + 1) if " to " in item and len(found) == 2 else found
