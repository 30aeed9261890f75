"""The page of `cocos report`: what it says is what the measures say, and a stranger's text stays text."""

import csv
import html
import io
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import measures
from cocos.commands import app
from cocos.reports import findings, page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>'


def rows(seed: int = 0, number: int = 96, noise: float = 0.4) -> cocos.Embeddings:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(number, 12, generator=generator)
    return cocos.Embeddings(query, query + noise * torch.randn(number, 12, generator=generator))


@pytest.fixture(scope="module")
def example():

    return cocos.report(cocos.open("example"), batches=8)


def drawing_once():
    """`page._pictured` that draws one picture in the place of all: most of the time of a page is its pictures."""
    draw_it, drawn = page._pictured, []

    def pictured(draw, kind):
        if not drawn:
            drawn.append(draw_it(draw, kind))
        return drawn[0]

    return pictured


def in_words(*given, **options):
    """A page with one picture in the place of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_pictured", drawing_once())
        return cocos.report(*given, **options)


@pytest.fixture(scope="module")
def plain():
    """The page of a small set."""
    return in_words(rows(), batch_size=32)


@pytest.fixture(scope="module")
def compared():
    """The page of two models, of which the second finds less noise."""
    return in_words(rows(noise=2.0), rows(noise=0.1), batch_size=32)


@pytest.fixture
def undrawn(plain, monkeypatch):
    """One picture in place of all, where words are looked at."""
    (picture, *_) = (each for section in plain.sections for each in section.pictures)
    monkeypatch.setattr(page, "_pictured", lambda draw, kind: picture)


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory):
    """A file that has a page whose name and texts try to be code."""
    folder = tmp_path_factory.mktemp("hostile")
    made = rows()
    names = [f"{HOSTILE} {row // 2}" for row in range(96)]
    np.savez(
        folder / "a&b.npz", query=made.query.numpy(), candidate=made.candidate.numpy(), query_name=names,
        candidate_name=names,
    )  # fmt: skip
    return folder / "a&b.npz"


@pytest.fixture(scope="module")
def hostile(hostile_file):
    return in_words(cocos.open(hostile_file), batch_size=32)


def test_the_findings_are_those_of_the_measures(example):
    said = {each.sentence for _, data in example.results for each in findings.of(data)}
    document = example.document()
    assert {each["sentence"] for each in document["findings"]} == said
    asking = [each for each, _ in example.found()]
    assert asking and [each.severity for each in asking] == sorted(
        (each.severity for each in asking), key=page.ASKING.index
    )
    assert example.verdict.lower().startswith(asking[0].sentence.lower())


def test_the_gravest_finding_stands_first_and_then_the_one_of_the_largest_part(example):
    asking = [each for each, _ in example.found()]
    some = [replace(asking[0], severity=severity, part=part) for severity, part in (("look", 0.1), ("look", 0.5))]
    some.insert(1, replace(asking[0], severity="stop", part=0.2))
    made = page.Page("of findings")
    made._findings = [(each, "") for each in some]
    assert [(each.severity, each.part) for each, _ in made.found()] == [("stop", 0.2), ("look", 0.5), ("look", 0.1)]
    assert made.severity == "stop"


def test_the_slider_has_the_counts_of_five_thresholds(example):

    frozen = cocos.open("example")
    embeddings = frozen.embed()
    for place in (10, 25, 40, 50, 59):
        eps = example.curve["eps"][place]
        counted = measures.count(embeddings, frozen.loss()[0], eps, batches=8)
        for name, side in example.curve["directions"].items():
            one = counted.sel(direction=name)["contributing"]
            assert side["contributing"][place] == pytest.approx(float(one.mean()), abs=1e-9)
            assert side["idle"][place] == pytest.approx(float((one == 0).sum() / one.notnull().sum()), abs=1e-9)


def test_the_page_needs_nothing_else(example):
    text = example.html()
    assert len(text.encode()) < 3_000_000
    assert not re.search(r"""(?:src|href|srcset)=["'](?!#|data:image/svg\+xml,)""", text)
    assert "default-src 'none'" in html.unescape(text) and "unsafe" not in text
    for section in ("how-many", "how-unequal", "what-if", "suspects", "queries", "retrieval"):
        assert f'<section id="{section}"' in text
    assert text.count("<img src=") == sum(len(each.pictures) for each in example.sections) > 3


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes():
    assert cocos.report(rows(), batch_size=32).html() == cocos.report(rows(), batch_size=32).html()


def test_a_strangers_text_stays_text(hostile):
    text = hostile.html()
    assert HOSTILE not in text and "onerror=alert(1)>" not in text
    assert text.count("<script") == 3 and text.count("</script>") == 3


@pytest.mark.usefixtures("undrawn")
def test_results_and_two_models_have_a_page(tmp_path, compared):
    first, second = rows(noise=2.0), rows(noise=0.1)
    assert [page._kind_of(data) for _, data in compared.results] == ["diff", "count", "count"]
    assert "MRR goes from" in compared.verdict
    assert (compared.severity, cocos.report(second, first, batch_size=32).severity) == ("note", "look")
    moved = next(each for each in compared.sections if each.title == "Which queries moved?")
    rows_moved = next(data for _, data in compared.results if "changed_index" in data)["changed_index"].values
    shown = [[row[0] for row in detail.tables[0].rows if row[0]] for detail in moved.details]
    assert shown == [[str(row) for row in side if row >= 0] for side in rows_moved]
    counted = measures.count(first, batch_size=32)
    alone = cocos.report(counted)
    assert [each.key for each in alone.sections] == ["count-0"]
    assert alone.save(tmp_path / "one.html").read_text("utf-8") == alone.html()


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_without_a_change_of_rank_says_what_changed():
    one = rows(noise=0.01)
    moved = cocos.Embeddings(one.query + 3, one.candidate + 3)
    page_of_both = cocos.report(one, moved, batch_size=32)
    assert re.match(r"q2c \w+: [+-]\d", page_of_both.verdict)
    assert cocos.report(one, rows(noise=0.01), batch_size=32).verdict == "No change between the two is resolved."


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_of_ranks_alone_says_its_sentence():
    labels = torch.arange(96) % 8
    ranked = [
        measures.evaluate(cocos.Embeddings.labelled(torch.eye(12)[labels] + noise * rows().query, labels))
        for noise in (1.0, 0.1)
    ]
    assert cocos.report(measures.diff(*ranked)).verdict.startswith("s2s: MRR goes from")


@pytest.mark.usefixtures("undrawn")
def test_the_verdict_on_the_whole_set_goes_before_a_few_suspects():
    loss = cocos.losses.load("ntxent", {"temperature": 20.0})
    flat = cocos.report(rows(number=200, noise=0.8), loss=loss, batch_size=64)
    assert flat.verdict.startswith("Flat: ") and any("suspected" in each for each in flat.said("found"))


@pytest.mark.usefixtures("undrawn")
def test_a_model_that_has_nearly_collapsed_is_not_told_to_change_its_temperature():
    one = torch.ones(1, 8) + 1e-3 * rows(number=200).query[:, :8]
    made = cocos.report(cocos.Embeddings(one, one + 1e-3 * rows(1, 200).query[:, :8]), batch_size=64)
    assert "nearly collapsed" in made.verdict and made.severity == "stop"
    assert not any("temperature or" in each.cure for each, _ in made.found())


@pytest.mark.usefixtures("undrawn")
def test_few_suspects_are_a_remark_and_a_rule_that_suspects_most_is_none():
    names = [f"text {row % 4}" for row in range(96)]
    made = rows()
    alike = cocos.Embeddings(made.query, made.candidate, names=(names, ["text 0"] * 96))
    loose = [each for each, _ in cocos.report(alike, batch_size=32).found() if each.kind == "no rule"]
    assert loose and all(each.limit == findings.MOST_SUSPECTED < each.numbers["share"] for each in loose)
    one = measures.audit(rows(noise=0.8), cocos.losses.load("ntxent", {"temperature": 20.0}), batch_size=32)
    few = [each for each in findings.of(one) if each.kind == "suspected" and each.state == "found"]
    assert all((each.severity == "note") == (each.part < findings.LEAST_PUSH) for each in few)


@pytest.mark.usefixtures("undrawn")
def test_sentences_are_said_once_and_whole(compared):
    assert re.fullmatch(r"[^,]+ \(A\) and [^,]+ \(B\)", compared.title)
    assert not any(" p = " in line for line in compared.said("found"))
    starved = cocos.report(rows(noise=0.01), batch_size=32)
    for each, _ in starved.found():
        assert not each.cure or each.cure.lower() not in each.sentence.lower()
    reasons = [line.rpartition(" (")[2] for line in starved.said("unseen")]
    assert len(set(reasons)) == len(reasons)
    assert page._capital("i2t: 3") == "i2t: 3" and page._capital("flat: 3") == "Flat: 3"


def test_the_first_suspects_stand_open_and_the_others_unfold(hostile):
    text = hostile.html()
    pairs = text.count("<tr data-pair=")
    assert pairs > page.OPEN_SUSPECTS and f"{pairs - page.OPEN_SUSPECTS} more suspected pairs" in text


def test_each_query_of_the_page_is_that_of_the_measure(example):
    """Parts of the push and of the pull, and the rest as one number, of single queries."""

    frozen = cocos.open("example")
    embeddings, loss = frozen.embed(), frozen.loss()[0]
    side = example.queries["directions"][0]
    every = {each["row"]: each for each in side["queries"]}
    assert len(every) == len(side["queries"]) <= side["total"] == 2497
    for row in sorted(every)[::200]:
        one = measures.contributors(embeddings, loss, row=row, top=None)
        each, pushing = every[row], (~one["positive"] & (one["weight"] > 0)).values
        assert each["contributing"] == one.attrs["contributing"]
        assert each["effective"] == pytest.approx(one.attrs["effective"], abs=0.01)
        parts = dict(zip(one["candidate_index"].values[pushing].tolist(), one["part"].values[pushing], strict=True))
        listed = {j: part for j, part, _ in each["top"]}
        assert listed == pytest.approx({j: parts[j] for j in listed}, abs=1e-4)
        assert each["rest"] == pytest.approx(1 - sum(listed.values()), abs=1e-3)
        assert each["top"][0][1] == pytest.approx(max(parts.values()), abs=1e-4)
        assert all(
            one["positive"].values[one["candidate_index"].values.tolist().index(j)] for j, *_ in each["positives"]
        )
    shown = [entry for rows_ in example.queries["rows"] for entry in rows_.values()]
    assert any("image" in entry for entry in shown) and any("text" in entry for entry in shown)
    assert len(page.queries.packed(example.queries)) <= page.queries.DOCUMENT_BYTES


@pytest.mark.usefixtures("undrawn")
def test_a_large_set_is_a_stratified_sample_that_the_header_states(monkeypatch):
    monkeypatch.setattr(page.queries, "DOCUMENT_STEPS", ((20, 20, 160, 0),))
    made = cocos.report(rows(), batch_size=32)
    side = made.queries["directions"][0]
    hardest = sorted(each["hardest"] for each in side["queries"])
    whole = measures.count(rows(), batch_size=32).sel(direction="q2c")["hardest_share_per_query"].values.ravel()
    assert len(hardest) == 20 and side["total"] == 96
    assert (hardest[0], hardest[-1]) == pytest.approx((np.nanmin(whole), np.nanmax(whole)), abs=1e-4)
    assert "20 of 96 queries of q2c and 20 of 96 queries of c2q, evenly drawn" in made.html()


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_collapses_is_one_finding_and_no_matter_of_temperature():
    one = torch.ones(1, 12)
    states = [cocos.Embeddings(each.query + size * one, each.candidate + size * one)
              for each in [rows(noise=0.2)] for size in (0, 0, 20, 30)]  # fmt: skip
    made = cocos.report(measures.run(states, steps=[0, 10, 20, 30], batch_size=32))
    kinds = [each.kind for each, _ in made.found()]
    assert kinds[0] == "collapse" and "alike" not in kinds
    told = {each.sentence for each, _ in made.found()}
    assert not told & set(made.sections[0].says) and "detectors were watching" not in made.html()
    assert "?" not in "".join(value for _, value in page._provenance([data.attrs for _, data in made.results]))
    assert not any("temperature (a larger" in f"{each.sentence}{each.cure}" for each, _ in made.found())


@pytest.mark.usefixtures("undrawn")
def test_a_set_too_large_to_be_compared_leaves_that_to_commands(monkeypatch):
    monkeypatch.setattr(page, "MOST_SCORED", 96 * 96 - 1)
    monkeypatch.setattr(page, "FEW_BATCHES", 2)
    made = cocos.report(rows(), batch_size=32)
    assert "the other sections are of 2 of them" in made.html()
    assert "retrieval" not in {each.key for each in made.sections}
    assert any("96 queries with all 96 candidates" in line for line in made.said("unseen"))
    (audited,) = (data for key, data in made.results if key == "suspects")
    assert audited["rule"].values[:-1].tolist() == ["group"]


def test_another_temperature_and_batch_size_are_those_of_the_measure(monkeypatch):
    draw_it, draw_once, made = page._pictured, drawing_once(), rows()
    choose = lambda draw, kind: (draw_it if kind == "what if" else draw_once)(draw, kind)  # noqa: E731
    monkeypatch.setattr(page, "_pictured", choose)
    loss = cocos.losses.load("ntxent", {"temperature": 0.05})
    shown = next(each for each in cocos.report(made, loss=loss, batch_size=32).sections if each.key == "what-if")
    (detail,), (drawn,) = shown.details, shown.pictures
    for side, table in zip(made.directions, detail.tables, strict=True):
        values = [float(row[0].split()[0]) for row in table.rows]
        assert values[0] == pytest.approx(0.005) and values[-1] == pytest.approx(0.5)
        assert [row[0] for row in table.rows if "as it is" in row[0]] == ["0.05 (as it is)"]
        for place, size in enumerate((32, 16, 64)):
            assert table.columns[1 + 2 * place].startswith(f"batches of {size}")
            one = measures.temperature_curve(made, loss, [0.05, 0.5], batch_size=size).sel(direction=side)
            for row, at in ((table.rows[3], 0), (table.rows[6], 1)):
                effective, idle = map(float, row[1 + 2 * place : 3 + 2 * place])
                assert effective == pytest.approx(float(one["effective"][at]), rel=6e-3)
                assert idle == pytest.approx(100 * float(one["idle_fraction"][at]), abs=0.06)
    picture = unquote(drawn.source)
    assert picture.count("temperature (embeddings frozen)") == 4 and picture.count("0.05 as it is") == 4
    assert all(picture.count(f"{side}: ") == 2 for side in made.directions)  # each with both panels
    assert "effective number of negatives" in picture and "idle queries (%)" in picture
    assert page.FROZEN_SAYS in shown.says and "effective negatives at temperature 0.05" in drawn.alt
    changes = [row[0].strip() for row in shown.tables[0].rows]
    assert changes[1:6] == ["as it is", "temperature 0.025", "temperature 0.1", "batch size 16", "batch size 64"]


@pytest.mark.usefixtures("undrawn")
def test_each_command_of_the_page_prints_what_its_section_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, noise in (("one", 0.4), ("two", 1.5)):
        np.savez(f"{name}.npz", query=rows().query.numpy(), candidate=rows(noise=noise).candidate.numpy())
    runner = CliRunner()
    for files, least in ((["one.npz"], 6), (["one.npz", "two.npz"], 3)):
        asked = [*files, "--loss", "ntxent", "-p", "temperature=0.05", "--batch-size", "32", "--out", "page.html", "-q"]
        done = runner.invoke(app, ["report", *asked])
        assert done.exit_code == 0, done.output
        commands = re.findall(r'<p class="command"><code>(.*?)</code>', Path("page.html").read_text("utf-8"))
        assert len(commands) >= least
        for command in map(html.unescape, commands):
            done = runner.invoke(app, [*shlex.split(command)[1:], "-q"])
            assert done.exit_code == 0, (command, done.output)
            assert "temperature=0.05" in command or command.startswith("cocos evaluate")
        assert not re.search(r"\bFILE\b", Path("page.html").read_text("utf-8"))


def test_advice_names_the_file_as_it_is_typed():
    finding = findings.Finding("suspected", "some", cure="read them: cocos audit FILE --out suspects.csv")
    path = page._typed_path({"checkpoint_path": "my runs/one.npz"})
    assert page._of_file(finding, path).cure == "read them: cocos audit 'my runs/one.npz' --out suspects.csv"
    assert page._of_file(finding, page._typed_path({})) == finding  # embeddings in memory
    assert not page._typed_path({"checkpoint_path": "one.pt\ntwo.pt"})


@pytest.mark.usefixtures("undrawn")
def test_two_results_of_one_kind_are_compared_and_findings_name_theirs():
    several = [cocos.losses.load("ntxent", {"temperature": temperature}) for temperature in (0.1, 20.0)]
    counted = [measures.count(rows(number=200, noise=0.8), each, batch_size=64) for each in several]
    made = cocos.report(*counted, files=[Path("one.nc"), Path("two.nc")])
    assert [page._kind_of(data) for _, data in made.results] == ["diff", "count", "count"]
    assert made.title == "one.nc (A) and two.nc (B)"
    asking = [each.sentence for each, _ in made.found()]
    assert asking and all(each.startswith("two.nc: ") for each in asking)
    (shown,) = (data for _, data in made.results if page._kind_of(data) == "diff")
    assert shown.identical(measures.diff(*counted, names=("one.nc", "two.nc")))
    tables = [*made.sections[0].tables, *(each for detail in made.sections[0].details for each in detail.tables)]
    rows_of = {row[0] for row in tables[0].rows}
    assert {"q2c effective number of negatives", "q2c summed share of the negatives above eps"} <= rows_of
    assert not any("_" in row for row in rows_of)


@pytest.mark.usefixtures("undrawn")
def test_the_name_of_a_file_keeps_its_letters_in_the_verdict():
    states = [rows(noise=0.2, number=60), rows(noise=0.2, number=60)]
    states[1] = cocos.Embeddings(states[1].query + 30, states[1].candidate + 30)
    runs = [measures.run(each, steps=[0, 10], batch_size=32) for each in (states[:1] * 2, states)]
    made = cocos.report(*runs, files=[Path("first"), Path("second")])
    assert made.verdict.startswith("second: ") and made.verdict[8:].strip()


@pytest.mark.parametrize("kind", ["lorenz", "replay", "eps_curve", "temperature_curve"])
def test_a_result_in_which_nothing_is_looked_for_is_shown_as_it_is(kind):
    made = cocos.report(getattr(measures, kind)(rows(), batch_size=32))
    assert made.verdict == "These results are shown as they are: cocos looks for nothing in them."
    (section,) = made.sections
    assert section.key == f"{kind}-0" and section.pictures and (section.tables or section.details)


LABELS = torch.arange(96) % 8


@pytest.mark.parametrize(
    ("made", "loss"),
    [
        (cocos.Embeddings.labelled(torch.eye(12)[LABELS] + 0.5 * rows().query, LABELS), "triplet"),
        (cocos.Embeddings(torch.eye(12)[LABELS] + 0.5 * rows().query, torch.eye(12)[:8], LABELS, torch.arange(8)),
         "proxy_anchor"),
        (rows(), "smoothap"),
    ],
    ids=["labelled", "proxies", "a loss of ranks"],
)  # fmt: skip
def test_other_kinds_of_embeddings_have_all_sections(made, loss):
    report = cocos.report if loss == "proxy_anchor" else in_words  # pictures of one of them: of others by test_plot.py
    shown = {each.key for each in report(made, loss=loss, batch_size=32).sections}
    assert {"how-many", "how-unequal", "what-if", "suspects", "queries", "retrieval"} <= shown


@pytest.mark.usefixtures("undrawn")
def test_a_finding_on_a_filter_that_nobody_asked_for_is_a_remark():
    made = rows(noise=3.0)
    shown = cocos.report(made, batch_size=32)
    assert any("`percent`" in each for each in shown.said("found"))
    assert not any("`percent`" in each.sentence for each, _ in shown.found())


@pytest.mark.usefixtures("undrawn")
def test_a_finding_of_one_loss_among_several_names_it():
    counted = measures.count(rows(), [cocos.losses.load("ntxent"), cocos.losses.load("triplet")], batch_size=32)
    made = cocos.report(counted)
    asking = made.found()
    assert not any("not found: " in line for line in made.said("absent"))
    assert asking and all(each.sentence.startswith(f"{each.loss}: ") for each, _ in asking)


def test_findings_and_provenance_are_said_once(example):
    text, groups = example.html(), example.grouped()
    assert len(groups) <= len(example.found()) == sum(map(len, groups))
    assert text.count(groups[0][0][0].cure) <= 2 and text.count('class="where"') == len(groups)
    assert text.count('<th scope="row">sha256</th>') == 1
    assert text.count(groups[0][0][0].sentence[4:]) == 1 and "</strong> the headline of this page</p>" in text
    assert "threshold: 1 % of the push" in text and "threshold: 1 % of the rows" in text
    (how_unequal,) = (each for each in example.sections if each.key == "how-unequal")
    assert not how_unequal.says  # the title of its picture says it
    assert not re.search(r"\.\. ", text)


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ((), "report: nothing, expected"),
        ((rows(),) * 3, "3 models"),
        ((rows(), measures.weight_curve("triplet")), "1 model and 1 result,"),
    ],
)
def test_sources_that_share_no_page_are_refused(sources, said):
    with pytest.raises(cocos.InputError, match=said):
        cocos.report(*sources)


def test_a_result_without_a_place_on_the_page_is_refused():
    with pytest.raises(cocos.InputError, match="is of no measure that the page shows"):
        cocos.report(measures.weight_curve("triplet", points=5))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["page.pdf", "missing/page.html"])
def test_a_page_that_cannot_be_written_is_refused(tmp_path, name):
    with pytest.raises(cocos.InputError, match="output"):
        cocos.report(measures.count(rows(), batch_size=32)).save(tmp_path / name)


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page from disk in a tab, which asks for nothing and complains of nothing."""
    heard, contexts = [], []

    def go(made: page.Page, view: str = "", **options):
        path = made.save(tmp_path / "report.html")
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options))
        tab = contexts[-1].new_page()
        tab.on("request", lambda asked: asked.url.startswith(("data:", "file:", "blob:")) or heard.append(asked.url))
        tab.on("console", lambda said: heard.append(said.text))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
        tab.goto(path.as_uri() + view)
        return tab

    yield go
    for each in contexts:
        each.close()
    assert heard == []


def listed(tab) -> list[str]:
    """Names of all queries of the table."""
    while tab.locator(".list > button").is_visible():
        tab.locator(".list > button").click()
    return tab.locator(".list .name").all_inner_texts()


def name_of(made: page.Page, side: int, row: int) -> str:
    """A row as the page names it."""
    sides = made.queries["rows"]
    return sides[side if len(sides) > 1 else 0][str(row)].get("text", f"row {row}")


def test_the_slider_shows_its_counts_and_stays_in_the_address(opened, example):
    tab = opened(example)
    for place in (10, 25, 40, 59, 50):
        tab.locator("#eps").fill(str(place))
        shown = tab.inner_text("#eps-counts")
        for name, side in example.curve["directions"].items():
            assert f"{name}: {side['contributing'][place]:.2f} contribute, {100 * side['idle'][place]:.1f} %" in shown
    tab.locator("#eps").focus()
    tab.keyboard.press("ArrowRight")
    shown = tab.inner_text("#eps-counts")
    assert f"eps = {example.curve['eps'][51]:.3g}"[:8] in shown
    tab.reload()
    assert tab.inner_text("#eps-counts") == shown


def test_the_slider_names_the_directions_in_their_order(opened, plain):
    assert opened(plain).inner_text("#eps-counts").split(". ")[1].startswith("q2c: ")


def test_a_rectangle_on_the_map_selects_its_rows(opened, plain):
    side = plain.queries["directions"][0]
    tab = opened(plain)
    assert len(listed(tab)) == len(side["queries"]) == 96
    tab.locator(".map canvas").scroll_into_view_if_needed()
    frame = tab.locator(".map canvas").bounding_box()
    ends = [(0.2 * frame["width"], 0.3 * frame["height"]), (0.6 * frame["width"], 0.7 * frame["height"])]
    for act, (x, y) in zip((tab.mouse.down, tab.mouse.up), ends, strict=True):
        tab.mouse.move(frame["x"] + x, frame["y"] + y)
        act()
    tab.wait_for_function("document.querySelector('.filtered').innerText.includes(' of 96')")
    box = [float(each) for each in parse_qs(tab.url.partition("#")[2])["brush"][0].split(",")]
    reach = {
        axis: (min(each[axis] for each in side["queries"]), max(each[axis] for each in side["queries"]))
        for axis in "xy"
    }
    drawn = [[(part * size - 8) / (size - 16) for part in parts]
             for parts, size in (((0.2, 0.6), frame["width"]), ((0.3, 0.7), frame["height"]))]  # fmt: skip
    (left, right), (low, high) = reach["x"], reach["y"]
    across = [left + part * (right - left) for part in drawn[0]]
    along = [high - part * (high - low) for part in reversed(drawn[1])]
    assert box == pytest.approx([across[0], along[0], across[1], along[1]], abs=0.01)
    wanted = {
        f"row {each['row']}"
        for each in side["queries"]
        if box[0] <= each["x"] <= box[2] and box[1] <= each["y"] <= box[3]
    }
    found = listed(tab)
    assert set(found) == wanted and 5 < len(found) == len(wanted) < 60
    assert f"{len(wanted)} of 96" in tab.inner_text(".filtered")
    tab.reload()
    assert listed(tab) == found
    tab.click(".clear")
    assert len(listed(tab)) == 96


def test_a_rectangle_is_drawn_in_time_over_fifteen_thousand_points(opened, plain, monkeypatch):
    """50 ms on a machine at rest; the limit leaves room for others that work on it."""
    side, draw = plain.queries["directions"][0], np.random.default_rng(0).normal(size=(15_000, 2)).round(3)
    some = [side["queries"][k % 96] | {"x": x, "y": y} for k, (x, y) in enumerate(draw.tolist())]
    monkeypatch.setitem(plain.queries, "directions", [side | {"queries": some, "total": len(some)}])
    tab = opened(plain)
    taken = tab.evaluate(
        """async () => {
          const canvas = document.querySelector(".map canvas"), frame = canvas.getBoundingClientRect(), taken = [];
          canvas.setPointerCapture = () => {};
          const send = (type, x) => canvas.dispatchEvent(
            new PointerEvent(type, { clientX: frame.left + x, clientY: frame.top + x, bubbles: true }));
          send("pointerdown", 20);
          for (let step = 1; step <= 20; step++) {
            const begun = performance.now();
            send("pointermove", 20 + 15 * step);
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            taken.push(performance.now() - begun);
          }
          send("pointerup", 320);
          return taken;
        }"""
    )
    assert "of 15,000" in tab.inner_text(".filtered")
    assert np.median(taken) < 150


def test_the_table_is_sorted_and_filtered(opened, example):
    tab, side = opened(example), example.queries["directions"][0]
    by_push = sorted(side["queries"], key=lambda each: -each["push"])
    tab.get_by_role("button", name="push", exact=True).click()
    assert tab.locator(".list .name").first.inner_text() == name_of(example, side["asks"], by_push[0]["row"])
    tab.get_by_role("button", name="push ↓").click()
    assert tab.locator(".list .name").first.inner_text() == name_of(example, side["asks"], by_push[-1]["row"])
    tab.get_by_label("show").select_option("outranked")
    outranked = [each for each in side["queries"] if (each["rank"] or 0) > 1]
    assert f"{len(outranked):,} of {len(side['queries']):,}" in tab.inner_text(".filtered")
    tab.get_by_label("with the text").fill("WOMAN")
    named = [each for each in outranked if "woman" in name_of(example, side["asks"], each["row"]).lower()]
    assert 0 < len(named) < len(outranked)
    tab.wait_for_function(f"document.querySelector('.filtered').innerText.startsWith('{len(named)} of')")
    names = listed(tab)
    assert sorted(names) == sorted(name_of(example, side["asks"], each["row"]) for each in named)
    tab.reload()
    assert listed(tab) == names and tab.get_by_label("with the text").input_value() == "WOMAN"


@pytest.mark.parametrize("width", [390, 1280])
def test_the_drawer_has_the_texts_and_parts_of_a_query(opened, example, width):
    name = example.queries["directions"][1]["name"]
    side = example.queries["directions"][1]
    query = side["queries"][7]
    tab = opened(example, f"#direction={name}&query={query['row']}", viewport={"width": width, "height": 800})
    assert tab.inner_text(".drawer h3") == name_of(example, side["asks"], query["row"])
    for kind in ("positives", "top"):
        shown = tab.locator(f".drawer .{'negatives' if kind == 'top' else kind} li")
        texts = shown.locator(".name").all_inner_texts()[: len(query[kind])]
        assert texts == [name_of(example, side["ranked"], row) for row, *_ in query[kind]]
        for entry, (_, part, score) in zip(shown.locator(".value").all_inner_texts(), query[kind], strict=False):
            word, told, said = re.fullmatch(r"(pull|push) ([\d.]+) %, score (-?[\d.]+)", entry).groups()
            assert word == ("push" if kind == "top" else "pull")
            assert (float(told), float(said)) == (pytest.approx(100 * abs(part), rel=0.02, abs=0.01), score)
    rest = tab.locator(".drawer .negatives li").last.inner_text()
    assert f"the other {query['negatives'] - len(query['top'])} negatives" in rest
    assert float(re.search(r"push ([\d.]+) %", rest)[1]) == pytest.approx(100 * query["rest"], rel=0.02, abs=0.01)
    row = example.queries["rows"][side["ranked"]][str(query["top"][0][0])]
    images = tab.locator(".drawer .negatives li").first.locator("img")
    assert images.count() == ("image" in row)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    box = tab.locator(".drawer").bounding_box()
    assert (box["x"], box["width"]) == (0, 390) if width == 390 else box["x"] > 600


def test_the_keyboard_alone_brushes_opens_walks_and_closes(opened, example):
    tab = opened(example)
    held = "document.activeElement"
    tab.get_by_label("with the text").focus()
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate(f"{held}.tagName") == "CANVAS":
            break
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Shift+ArrowUp")
    tab.wait_for_function("document.querySelector('.filtered').innerText.includes(' of ')")
    some = tab.inner_text(".filtered")
    tab.keyboard.press("Enter")
    first = tab.inner_text(".drawer h3")
    assert tab.evaluate(f"{held}.tagName") == "H3"
    tab.keyboard.press("j")
    assert tab.inner_text(".drawer h3") != first
    tab.keyboard.press("k")
    assert tab.inner_text(".drawer h3") == first
    tab.keyboard.press("Escape")
    assert tab.locator(".drawer").is_hidden() and tab.inner_text(".filtered") == some
    assert tab.evaluate(f"{held}.tagName") in {"CANVAS", "BUTTON"}
    tab.keyboard.press("Escape")
    assert " of " not in tab.inner_text(".filtered")
    assert tab.url.endswith("#")


def test_j_and_k_walk_in_the_order_of_the_table(opened, plain):
    tab = opened(plain)
    names = listed(tab)
    tab.locator(".list .name").nth(2).click()
    for key, place in (("j", 3), ("k", 2), ("k", 1)):
        tab.keyboard.press(key)
        assert tab.inner_text(".drawer h3") == names[place]


def test_reload_and_a_link_to_a_section_keep_the_view(opened, example):
    side = example.queries["directions"][1]
    row = side["queries"][3]["row"]
    tab = opened(example, f"#direction={side['name']}&sort=rank&kind=outranked&brush=-0.5,-0.5,0.5,0.5&query={row}")
    seen = [tab.inner_text(each) for each in (".filtered", ".list", ".drawer h3")]
    assert seen[2] == name_of(example, side["asks"], row) and " of " in seen[0]
    tab.keyboard.press("Escape")
    tab.locator("nav a", has_text="What if?").click()
    tab.wait_for_url("**section=what-if")
    assert "kind=outranked" in tab.url
    tab.reload()
    assert [tab.inner_text(each) for each in (".filtered", ".list")] == seen[:2]
    assert tab.evaluate("document.getElementById('what-if').getBoundingClientRect().top") == pytest.approx(0, abs=60)


def test_a_script_in_a_text_stays_text_in_the_browser(opened, hostile):
    row = hostile.queries["directions"][0]["queries"][5]["row"]
    tab = opened(hostile, f"#query={row}")
    assert tab.title() == hostile.title
    said = tab.inner_text(".drawer h3")
    assert said == name_of(hostile, 0, row) and said.startswith(HOSTILE)
    assert HOSTILE in tab.locator(".drawer .negatives .name").first.inner_text()
    assert HOSTILE in tab.locator("[data-pair]").first.inner_text()
    assert tab.locator("img[src='x']").count() == 0 and tab.locator("script").count() == 3


def test_results_of_strangers_stay_text_in_the_browser(opened):
    """Names of directions, the loss, notes and provenance of a result may say anything."""
    counted = measures.count(rows(), batch_size=32)
    hurt = {name: HOSTILE for name in ("title", "loss_repr", "sample", "checkpoint_path", "checkpoint_sha256", "notes")}
    counted = counted.assign_attrs(hurt).assign_coords(direction=[f"{HOSTILE}{k}" for k in range(2)])
    states = [measures.run([rows(noise=noise) for noise in (0.2, 0.5)], batch_size=32).assign_attrs(title=HOSTILE)]
    for made in (cocos.report(counted), cocos.report(*states), cocos.report(counted, files=[Path(f"{HOSTILE[-20:]}")])):
        tab = opened(made)
        assert tab.title() == made.title and tab.locator("img[src='x']").count() == 0
        assert HOSTILE in tab.inner_text("body") or "onerror" in tab.inner_text("body")


def test_answers_stay_in_the_browser_and_leave_as_the_list_that_audit_reads(opened, hostile, hostile_file):
    tab, pairs = opened(hostile), [each.key for section in hostile.sections for each in section.suspects]
    assert len(pairs) > 4
    tab.locator("[data-pair] button").first.focus()
    tab.keyboard.press("a")
    tab.keyboard.press("r")
    tab.keyboard.press("u")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("a")
    tab.keyboard.press("k")
    tab.keyboard.press("a")  # the same answer again takes it back
    tab.reload()
    pressed = tab.locator("[data-pair]:has([aria-pressed=true])")
    assert [each.get_attribute("data-pair") for each in pressed.all()] == pairs[:3]
    assert tab.locator("#answered").inner_text().startswith(f"3 of {len(pairs)} answered")
    with tab.expect_download() as download:
        tab.click("#export")
    path = hostile_file.parent / "suspects.csv"
    download.value.save_as(path)
    assert [*csv.reader(io.StringIO(path.read_text()))][1:] == [
        [*pairs[0].split(","), "1", "yes"], [*pairs[1].split(","), "0", "no"], [*pairs[2].split(","), "", "unsure"]
    ]  # fmt: skip
    given = ["audit", str(hostile_file), "--batch-size", "32", "--labels", str(path), "--json"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "labelled" in json.loads(done.stdout)["against"]
    data = measures.audit(cocos.open(hostile_file), labels=path, batch_size=32)
    kept = [f"{q},{c}" for q, c in zip(data["query_index"].values, data["candidate_index"].values, strict=True)]
    held = dict(zip(kept, data["suspected"].sel(suspicion="labelled").values.tolist(), strict=True))
    assert held[pairs[0]] and pairs[1] not in held and not held[pairs[2]]


def test_in_a_notebook_the_page_works_without_storage(opened, hostile, browser):
    tab = opened(hostile)
    tab.set_content(hostile._repr_html_())
    frame = tab.frame_locator("iframe")
    frame.locator("[data-pair] button").first.press("a")
    assert frame.locator("[aria-pressed=true]").count() == 1
    frame.locator(".list .name").first.click()
    assert frame.locator(".drawer h3").inner_text().startswith(HOSTILE)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(opened, example, hostile, width):
    for made in (example, hostile):
        tab = opened(made, viewport={"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator(".map").is_visible() == (width == 1280) and tab.locator(".list").is_visible()


def test_a_phone_has_pictures_whose_texts_can_be_read(opened, example):
    """Texts are at least 8 px on a phone: pictures are drawn at the width of a column for it."""
    for width in (390, 1280):
        tab = opened(example, viewport={"width": width, "height": 800})
        for place, each in enumerate(each for section in example.sections for each in section.pictures):
            drawn = each.narrow if width == 390 else each
            image = tab.locator("figure picture img").nth(place)
            image.scroll_into_view_if_needed()
            assert image.evaluate("each => each.naturalWidth") == pytest.approx(drawn.width, abs=2)
            assert image.bounding_box()["width"] > 0.85 * min(drawn.width, width)


def test_without_scripts_every_picture_and_number_is_there(opened, example):
    tab = opened(example, java_script_enabled=False)
    pictures = tab.locator("figure img").all()
    assert len(pictures) == sum(len(each.pictures) for each in example.sections)
    assert all(each.is_visible() for each in pictures)
    assert tab.locator(".slider").is_hidden() and tab.locator("#explorer").is_hidden()
    assert "contribute" in tab.inner_text("#how-many")
    assert tab.locator("#queries details").count() == page.LISTED_QUERIES


def test_the_printed_page_has_all_sections_and_nothing_to_click(opened, example):
    tab = opened(example, "#query=5")
    tab.evaluate(
        "addEventListener('beforeprint', () => {"
        " window.leftClosed = document.querySelectorAll('details:not([open])').length; })"
    )
    assert tab.pdf().startswith(b"%PDF")
    assert tab.evaluate("window.leftClosed") == 0 and tab.locator("details[open]").count() == 0
    tab.emulate_media(media="print")
    titles = [each.title for each in example.sections]
    assert set(titles) <= {each for each in tab.locator("h2").all_inner_texts() if each}
    for hidden in ("nav", ".slider", "#explorer", "#export", ".drawer"):
        assert tab.locator(hidden).first.is_hidden()
    assert tab.locator("#queries details").first.is_visible() and tab.locator("[data-pair]").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, example, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for view, width in (("", 1280), ("#query=5", 1280), ("#query=5", 390)):
        tab = opened(example, view, color_scheme=scheme, viewport={"width": width, "height": 900})
        found = axe.Axe().run(tab).response["violations"]
        assert [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in {"serious", "critical"}
        ] == []


def test_the_embedded_data_end_no_script():
    assert "<" not in page._embedded({"text": HOSTILE})
    assert json.loads(page._embedded({"text": HOSTILE})) == {"text": HOSTILE}
