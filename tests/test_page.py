"""The page of `cocos report`: what it says is what the measures say, and a stranger's text stays text."""

import html
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import measures
from cocos.cli import app
from cocos.counting import findings
from cocos.reports import page

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
    assert example.verdict.lower().startswith(asking[0].sentence.rstrip(".").lower())


def test_gravest_finding_goes_first(example):
    asking = [each for each, _ in example.found()]
    made = page.Page("of findings")
    made._findings = [(replace(asking[0], severity=severity), "") for severity in ("look", "stop", "look")]
    assert [each.severity for each, _ in made.found()] == ["stop", "look", "look"]
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
    assert [data.attrs["measure"] for _, data in compared.results] == ["diff", "count", "count"]
    assert "MRR changed" in compared.verdict
    assert (compared.severity, cocos.report(second, first, batch_size=32).severity) == ("note", "look")
    moved = next(each for each in compared.sections if each.title == "Which queries moved?")
    rows_moved = next(data for _, data in compared.results if "changed_index" in data)["changed_index"].values
    shown = [row[1] for detail in moved.details for row in detail.tables[0].rows]
    assert shown == [str(row) for side in rows_moved for row in side if row >= 0]
    counted = measures.count(first, batch_size=32)
    alone = cocos.report(counted)
    assert [each.key for each in alone.sections] == ["count-0"]
    assert alone.save(tmp_path / "one.html").read_text("utf-8") == alone.html()


@pytest.mark.usefixtures("undrawn")
def test_the_verdict_on_the_whole_set_goes_before_a_few_suspects():
    loss = cocos.losses.load("ntxent", {"temperature": 20.0})
    flat = cocos.report(rows(number=200, noise=0.8), loss=loss, batch_size=64)
    assert flat.found()[0][0].kind == "flat"


@pytest.mark.usefixtures("undrawn")
def test_a_model_that_has_nearly_collapsed_is_not_told_to_change_its_temperature():
    one = torch.ones(1, 8) + 1e-3 * rows(number=200).query[:, :8]
    made = cocos.report(cocos.Embeddings(one, one + 1e-3 * rows(1, 200).query[:, :8]), batch_size=64)
    assert "nearly collapsed" in made.verdict and made.severity == "stop"
    assert not any("temperature or" in each.cure for each, _ in made.found())


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
    assert any("96 queries with all 96 candidates" in line for line in made.remarks())
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
    assert "effective number" in picture and "idle queries (%)" in picture
    assert page.FROZEN_SAYS in shown.says and "effective negatives at temperature 0.05" in drawn.alt
    changes = {row[0].strip().removeprefix("q2c ").removeprefix("c2q ") for row in shown.tables[0].rows}
    assert {"as it is", "temperature 0.025", "temperature 0.1", "batch size 16", "batch size 64"} <= changes


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


@pytest.mark.usefixtures("undrawn")
def test_two_results_of_one_kind_are_compared_and_findings_name_theirs():
    several = [cocos.losses.load("ntxent", {"temperature": temperature}) for temperature in (0.1, 20.0)]
    counted = [measures.count(rows(number=200, noise=0.8), each, batch_size=64) for each in several]
    made = cocos.report(*counted, files=[Path("one.nc"), Path("two.nc")])
    assert [data.attrs["measure"] for _, data in made.results] == ["diff", "count", "count"]
    assert made.title == "one.nc (A) and two.nc (B)"
    asking = [each.sentence for each, _ in made.found()]
    assert asking and all(each.startswith("two.nc: ") for each in asking)
    (shown,) = (data for _, data in made.results if data.attrs["measure"] == "diff")
    assert shown.identical(measures.diff(*counted, names=("one.nc", "two.nc")))
    tables = [*made.sections[0].tables, *(each for detail in made.sections[0].details for each in detail.tables)]
    rows_of = {row[0] for row in tables[0].rows}
    assert {"q2c effective", "q2c weight_above"} <= rows_of


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
def test_a_finding_of_one_loss_among_several_names_it():
    counted = measures.count(rows(), [cocos.losses.load("ntxent"), cocos.losses.load("triplet")], batch_size=32)
    made = cocos.report(counted)
    asking = made.found()
    assert asking and all(each.sentence.startswith("Contributing negatives, ") for each, _ in asking)


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
        cocos.report(measures.count(rows(), batch_size=32), out=tmp_path / name)


@pytest.mark.usefixtures("undrawn")
def test_report_with_out_writes_the_page(tmp_path):
    page = cocos.report(measures.count(rows(), batch_size=32), out=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html()


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


def test_a_script_in_a_text_stays_text_in_the_browser(opened, hostile):
    row = hostile.queries["directions"][0]["queries"][5]["row"]
    tab = opened(hostile, f"#query={row}")
    assert tab.title() == hostile.title
    said = tab.inner_text(".drawer h3")
    assert said == name_of(hostile, 0, row) and said.startswith(HOSTILE)
    assert HOSTILE in tab.locator(".drawer .negatives .name").first.inner_text()
    assert HOSTILE in tab.locator("[data-pair]").first.inner_text()
    assert tab.locator("img[src='x']").count() == 0 and tab.locator("script").count() == 3


def test_without_scripts_every_picture_and_number_is_there(opened, example):
    tab = opened(example, java_script_enabled=False)
    pictures = tab.locator("figure img").all()
    assert len(pictures) == sum(len(each.pictures) for each in example.sections)
    assert all(each.is_visible() for each in pictures)
    assert tab.locator(".slider").is_hidden() and tab.locator("#explorer").is_hidden()
    assert "contributing" in tab.inner_text("#how-many")
    assert tab.locator("#queries details").count() == page.LISTED_QUERIES


def test_the_embedded_data_end_no_script():
    assert "<" not in page._embedded({"text": HOSTILE})
    assert json.loads(page._embedded({"text": HOSTILE})) == {"text": HOSTILE}
