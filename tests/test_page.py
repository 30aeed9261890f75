"""The page of `cocos report`: what it says is what the measures say, and a stranger's text stays text."""

import csv
import html
import io
import json
import re
import shutil

import numpy as np
import pytest
import torch

import cocos
from cocos import measures
from cocos.reports import findings, page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>'


def rows(seed: int = 0, number: int = 96, noise: float = 0.4) -> cocos.Embeddings:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(number, 12, generator=generator)
    return cocos.Embeddings(query, query + noise * torch.randn(number, 12, generator=generator))


@pytest.fixture(scope="module")
def example():
    from cocos.commands.demo import checkpoint

    return cocos.report(checkpoint(), batches=8)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A page whose file and texts try to be code."""
    folder = tmp_path_factory.mktemp("hostile")
    made = rows()
    names = [f"{HOSTILE} {row // 2}" for row in range(96)]
    np.savez(
        folder / "a&b.npz", query=made.query.numpy(), candidate=made.candidate.numpy(), query_name=names,
        candidate_name=names,
    )  # fmt: skip
    return cocos.report(cocos.open(folder / "a&b.npz"), batch_size=32)


def test_the_findings_are_those_of_the_measures(example):
    said = {each.sentence for _, data in example.results for each in findings.of(data)}
    document = example.document()
    assert {each["sentence"] for each in document["findings"]} == said
    asking = [each for each, _ in example.found()]
    assert asking and [each.severity for each in asking] == sorted(
        (each.severity for each in asking), key=page.ASKING.index
    )
    assert example.verdict.lower().startswith(asking[0].sentence.lower())


def test_the_slider_has_the_counts_of_five_thresholds(example):
    from cocos.commands.demo import checkpoint

    frozen = checkpoint()
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


def test_the_same_input_gives_the_same_bytes():
    assert cocos.report(rows(), batch_size=32).html() == cocos.report(rows(), batch_size=32).html()


def test_a_strangers_text_stays_text(hostile):
    text = hostile.html()
    assert HOSTILE not in text and "onerror=alert(1)>" not in text
    assert text.count("<script") == 3 and text.count("</script>") == 3


def test_results_and_two_models_have_a_page(tmp_path):
    first, second = rows(noise=2.0), rows(noise=0.1)
    compared = cocos.report(first, second, batch_size=32)
    assert [page._kind_of(data) for _, data in compared.results] == ["diff", "count", "count"]
    assert "MRR goes from" in compared.verdict
    counted = measures.count(first, batch_size=32)
    alone = cocos.report(counted)
    assert [each.key for each in alone.sections] == ["count-0"]
    assert alone.save(tmp_path / "one.html").read_text("utf-8") == alone.html()


def test_a_comparison_without_a_change_of_rank_says_what_changed():
    one = rows(noise=0.01)
    moved = cocos.Embeddings(one.query + 3, one.candidate + 3)
    page_of_both = cocos.report(one, moved, batch_size=32)
    assert re.match(r"q2c \w+: [+-]\d", page_of_both.verdict)
    assert cocos.report(one, rows(noise=0.01), batch_size=32).verdict == "No change between the two is resolved"


def test_a_comparison_of_ranks_alone_says_its_sentence():
    labels = torch.arange(96) % 8
    ranked = [
        measures.evaluate(cocos.Embeddings.labelled(torch.eye(12)[labels] + noise * rows().query, labels))
        for noise in (1.0, 0.1)
    ]
    assert cocos.report(measures.diff(*ranked)).verdict.startswith("s2s: MRR goes from")


def test_the_verdict_on_the_whole_set_goes_before_a_few_suspects():
    loss = cocos.losses.load("ntxent", {"temperature": 20.0})
    flat = cocos.report(rows(number=200, noise=0.8), loss=loss, batch_size=64)
    assert flat.verdict.startswith("Flat: ") and any("suspected" in each for each in flat.said("found"))


def test_a_model_that_has_nearly_collapsed_is_not_told_to_change_its_temperature():
    one = torch.ones(1, 8) + 1e-3 * rows(number=200).query[:, :8]
    made = cocos.report(cocos.Embeddings(one, one + 1e-3 * rows(1, 200).query[:, :8]), batch_size=64)
    assert "nearly collapsed" in made.verdict and made.severity == "stop"
    assert not any("temperature or" in each.cure for each, _ in made.found())


def test_few_suspects_are_a_remark_and_a_rule_that_suspects_most_is_none():
    names = [f"text {row % 4}" for row in range(96)]
    made = rows()
    alike = cocos.Embeddings(made.query, made.candidate, names=(names, ["text 0"] * 96))
    loose = [each for each, _ in cocos.report(alike, batch_size=32).found() if each.kind == "no rule"]
    assert loose and all(each.limit == findings.MOST_SUSPECTED < each.numbers["share"] for each in loose)
    one = measures.audit(rows(noise=0.8), cocos.losses.load("ntxent", {"temperature": 20.0}), batch_size=32)
    few = [each for each in findings.of(one) if each.kind == "suspected" and each.state == "found"]
    assert all((each.severity == "note") == (each.part < findings.LEAST_PUSH) for each in few)


def test_sentences_are_said_once_and_whole():
    compared = cocos.report(rows(noise=2.0), rows(noise=0.1), batch_size=32)
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
    from cocos.commands.demo import checkpoint

    frozen = checkpoint()
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


def test_a_large_set_is_a_stratified_sample_that_the_header_states(monkeypatch):
    monkeypatch.setattr(page.queries, "DOCUMENT_STEPS", ((20, 20, 160, 0),))
    made = cocos.report(rows(), batch_size=32)
    side = made.queries["directions"][0]
    hardest = sorted(each["hardest"] for each in side["queries"])
    whole = measures.count(rows(), batch_size=32).sel(direction="q2c")["hardest_share_per_query"].values.ravel()
    assert len(hardest) == 20 and side["total"] == 96
    assert (hardest[0], hardest[-1]) == pytest.approx((np.nanmin(whole), np.nanmax(whole)), abs=1e-4)
    assert "20 of 96 queries of q2c and 20 of 96 queries of c2q, evenly drawn" in made.html()


def test_a_run_that_collapses_is_one_finding_and_no_matter_of_temperature():
    one = torch.ones(1, 12)
    states = [cocos.Embeddings(each.query + size * one, each.candidate + size * one)
              for each in [rows(noise=0.2)] for size in (0, 0, 20, 30)]  # fmt: skip
    made = cocos.report(measures.run(states, steps=[0, 10, 20, 30], batch_size=32))
    kinds = [each.kind for each, _ in made.found()]
    assert kinds[0] == "collapse" and "alike" not in kinds
    told = {each.sentence for each, _ in made.found()}
    assert not told & set(made.sections[0].says) and "detectors were watching" not in made.html()
    assert not any("temperature (a larger" in f"{each.sentence}{each.cure}" for each, _ in made.found())


def test_a_set_too_large_to_be_compared_leaves_that_to_commands(monkeypatch):
    monkeypatch.setattr(page, "MOST_SCORED", 96 * 96 - 1)
    monkeypatch.setattr(page, "FEW_BATCHES", 2)
    made = cocos.report(rows(), batch_size=32)
    assert "the other sections are of 2 of them" in made.html()
    assert "retrieval" not in {each.key for each in made.sections}
    assert any("96 queries with all 96 candidates" in line for line in made.said("unseen"))
    (audited,) = (data for key, data in made.results if key == "suspects")
    assert audited["rule"].values[:-1].tolist() == ["group"]


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
    """Open a page from disk: the tab, and what it asked for or complained of."""

    def go(made: page.Page, **options):
        path, heard = made.save(tmp_path / "report.html"), []
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | options)
        tab.on("request", lambda asked: asked.url.startswith(("data:", "file:", "blob:")) or heard.append(asked.url))
        tab.on("console", lambda said: heard.append(said.text))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.goto(path.as_uri())
        return tab, heard

    return go


def test_the_slider_shows_its_counts_and_stays_in_the_address(opened, example):
    tab, heard = opened(example)
    tab.evaluate("const s = document.getElementById('eps'); s.value = 50; s.dispatchEvent(new Event('input'))")
    shown = tab.inner_text("#eps-counts")
    name, side = next(iter(example.curve["directions"].items()))
    assert f"{name}: {side['contributing'][50]:.2f} contribute" in shown
    tab.reload()
    assert tab.inner_text("#eps-counts") == shown
    assert heard == []


def test_answers_stay_in_the_browser_and_leave_as_the_list_that_audit_reads(opened, hostile):
    tab, heard = opened(hostile)
    pairs = [each.key for section in hostile.sections for each in section.suspects]
    assert tab.title() == hostile.title and len(pairs) > 1
    tab.locator("[data-pair] button", has_text="yes").first.focus()
    tab.keyboard.press("Enter")
    tab.reload()
    assert tab.locator("[aria-pressed=true]").count() == 1
    with tab.expect_download() as download:
        tab.click("#export")
    found = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [(f"{each['query']},{each['candidate']}", each["label"]) for each in found] == [(pairs[0], "1")]
    assert heard == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(opened, example, width):
    tab, _ = opened(example, viewport={"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_phone_has_pictures_whose_texts_can_be_read(opened, example):
    """Texts are at least 8 px on a phone: pictures are drawn at the width of a column for it."""
    for width in (390, 1280):
        tab, heard = opened(example, viewport={"width": width, "height": 800})
        for place, each in enumerate(each for section in example.sections for each in section.pictures):
            drawn = each.narrow if width == 390 else each
            image = tab.locator("figure img").nth(place)
            image.scroll_into_view_if_needed()
            assert image.evaluate("each => each.naturalWidth") == pytest.approx(drawn.width, abs=2)
            assert image.bounding_box()["width"] > 0.85 * min(drawn.width, width)
        assert heard == []


def test_without_scripts_every_picture_and_number_is_there(browser, example, tmp_path):
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto(example.save(tmp_path / "report.html").as_uri())
    assert tab.locator("figure img").count() == sum(len(each.pictures) for each in example.sections)
    assert tab.locator(".slider").is_hidden()
    assert "contribute" in tab.inner_text("#how-many")


def test_axe_finds_nothing_serious(opened, example):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    tab, _ = opened(example)
    found = axe.Axe().run(tab).response["violations"]
    assert [(each["id"], each["help"]) for each in found if each["impact"] in {"serious", "critical"}] == []


def test_the_embedded_data_end_no_script():
    assert "<" not in page._embedded({"text": HOSTILE})
    assert json.loads(page._embedded({"text": HOSTILE})) == {"text": HOSTILE}
