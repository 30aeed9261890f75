"""Suspected false negatives: rules, pushes and filters against a slow loop over every pair of every batch."""

import json
import math
from importlib import resources
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, losses, measures, reports
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.counting import weights
from cocos.embeddings import marks, sampling, scores
from cocos.measures.audit import suspicions

SIZE = 12
QUERIES = ["What is it?", "what is IT", "Who was she", "who was shee", "Where?", "When was that?", "", "", "Why", "How"]
PASSAGES = [
    "the cat",
    "a dog",
    "The Cat.",
    "the hat",
    "who was she",
    "",
    "one more line of text",
    "one more lines of text",
]


def same(one, other):
    return bool(one.strip()) and cocos.measures.shared.equal_texts.normal(
        one
    ) == cocos.measures.shared.equal_texts.normal(other)


def questions(seed=0, **more):
    """Thirty questions to eight passages, some of which say the same; scores that leave no query idle."""
    generator = torch.Generator().manual_seed(seed)
    passage = torch.randn(len(PASSAGES), 6, generator=generator)
    group = torch.arange(30) % len(PASSAGES)
    query = passage[group] + 0.9 * torch.randn(30, 6, generator=generator)
    names = ([QUERIES[(k * k + k) % len(QUERIES)] for k in range(30)], PASSAGES)
    return Embeddings(query, passage, group, torch.arange(len(PASSAGES)), names=names, **more)


def suspected(embeddings, query, candidate, rule):
    """A rule, word by word: a query and a candidate of other groups."""
    q, c = embeddings.query_group[query].item(), embeddings.candidate_group[candidate].item()
    if rule == "group":
        return q == c
    if rule == "neighbours":
        score = torch.nn.functional.normalize(embeddings.query) @ torch.nn.functional.normalize(embeddings.candidate).T
        return q != c and score[query].argmax() == candidate and score[:, candidate].argmax() == query
    said, asked = embeddings.names
    texts = [asked[p] for p in range(len(asked)) if embeddings.candidate_group[p] == q]
    others = [said[p] for p in range(len(said)) if embeddings.query_group[p] == c]
    of_texts = any(same(text, asked[candidate]) for text in texts)
    of_queries = any(same(text, said[query]) for text in others)
    return of_texts or of_queries or same(said[query], asked[candidate])


def loop(embeddings, loss, rules, seed=0):
    """Every negative of every batch: direction -> rows of (query, candidate, part, push, rules)."""
    plan = sampling.plan(embeddings, sample="pairs", batch_size=SIZE, seed=seed, matched=True)
    side, found = embeddings.to(dtype=torch.float64), {}
    for batch in plan.batches:
        for name, turned in (("q2c", False), ("c2q", True)):
            drawn, seen = (batch.flip(), side.flip()) if turned else (batch, side)
            pairs = scores.pairs(seen, drawn, metric=loss.metric, same_group="negative")
            weight = weights.autograd(loss, pairs)
            for q, row in enumerate(drawn.query_index.tolist()):
                push = [max(weight[q, c].item(), 0) * pairs.negative[q, c].item() for c in range(weight.shape[1])]
                for c, other in enumerate(drawn.candidate_index.tolist()):
                    if pairs.negative[q, c]:
                        rows = (other, row) if turned else (row, other)
                        part = push[c] / sum(push) if sum(push) else 0
                        held = tuple(rule for rule in rules if suspected(embeddings, *rows, rule))
                        own = pairs.scores[q][pairs.positive[q]].max().item()
                        entry = (rows, part, push[c], held, pairs.scores[q, c].item(), own, (name, len(found), q))
                        found.setdefault((name, id(batch), q), []).append(entry)
    return found


@pytest.mark.parametrize("name", ["ntxent", "triplet", "siglip"])
def test_an_audit_is_what_a_loop_finds(name):
    embeddings, loss = questions(), losses.load(name)
    rules = ["group", "text", "neighbours"]
    found = loop(embeddings, loss, rules)
    data = measures.audit(embeddings, loss, batch_size=SIZE, rules=rules)
    for direction in ("q2c", "c2q"):
        queries = [entries for key, entries in found.items() if key[0] == direction]
        every = [each for entries in queries for each in entries]
        for rule in (*rules, "any rule"):

            def hit(each, rule=rule):
                return bool(each[3]) if rule == "any rule" else rule in each[3]

            one = data.sel(direction=direction, rule=rule)
            assert one["suspects"] == sum(hit(each) for entries in queries for each in entries)
            push = sum(each[2] for entries in queries for each in entries if hit(each))
            assert one["push"].item() == pytest.approx(push, abs=1e-9)
            assert one["push_share"].item() == pytest.approx(push / sum(each[2] for each in every), abs=1e-9)
            assert one["share"].item() == pytest.approx(np.mean([hit(each) for each in every]), abs=1e-12)
            assert one["met"].item() == pytest.approx(np.mean([any(map(hit, entries)) for entries in queries]))
        assert data["suspects"].sel(direction=direction, rule="group") > 20
    assert (data["suspects"].sel(rule="text") > 3).all()


def test_the_list_sums_up_what_each_pair_receives():
    embeddings, loss = questions(), losses.load("ntxent")
    expected = {}
    for entries in loop(embeddings, loss, ["group", "text"]).values():
        for rows, part, push, held, score, *_ in entries:
            if held:
                expected.setdefault(rows, []).append((push, part, score, held))
    data = measures.audit(embeddings, loss, batch_size=SIZE, rules=["group", "text"])
    assert data.sizes["pair"] == len(expected)
    assert (np.diff(data["pair_push"].values) <= 0).all()
    for place in range(data.sizes["pair"]):
        one = data.isel(pair=place)
        entries = expected[int(one["query_index"]), int(one["candidate_index"])]
        push, part, score, held = zip(*entries, strict=True)
        assert one["pair_push"].item() == pytest.approx(sum(push), abs=1e-9)
        assert one["pair_part"].item() == pytest.approx(np.mean(part), abs=1e-9)
        assert one["score"].item() == pytest.approx(np.mean(score)) and one["drawn"] == len(entries)
        assert tuple(one["suspicion"].values[one["suspected"].values]) == held[0]


RULES_OF_FILTERS = {
    "self 0": lambda score, own: score > own,
    "self 0.1": lambda score, own: score > own + 0.1,
    "percent 0.95": lambda score, own: score > 0.95 * own,
    "factor 0.1": lambda score, own: score > own + 0.1,
}


def test_filters_are_replayed_as_their_papers_have_them():
    embeddings, loss = questions(seed=1), losses.load("ntxent")
    found = loop(embeddings, loss, ["group"])
    filters = {"self": [0, 0.1], "percent": [0.95], "factor": [0.1]}
    data = measures.audit(embeddings, loss, batch_size=SIZE, rules=["group"], filters=filters)
    assert data["filter"].values.tolist() == list(RULES_OF_FILTERS)
    for direction in ("q2c", "c2q"):
        queries = [entries for key, entries in found.items() if key[0] == direction]
        for label, rule in RULES_OF_FILTERS.items():
            one = data.sel(direction=direction, filter=label)
            every = [each for entries in queries for each in entries]
            out = [each for each in every if rule(each[4], each[5])]
            right = [each for each in out if each[3]]
            known = [each for each in every if each[3]]
            assert one["filter_share"].item() == pytest.approx(len(out) / len(every))
            total = sum(each[2] for each in every)
            assert one["filter_push"].item() == pytest.approx(sum(each[2] for each in out) / total)
            assert one["recall"].item() == pytest.approx(len(right) / len(known))
            parts = [sum(each[2] for each in some) for some in (out, right, known)]
            if out:
                assert one["precision"].item() == pytest.approx(len(right) / len(out))
                assert one["push_precision"].item() == pytest.approx(parts[1] / parts[0])
            assert one["push_recall"].item() == pytest.approx(parts[1] / parts[2])
            left = kept_of_a_weakened(queries, rule) if label.startswith("factor") else 0
            assert one["filter_left"].item() == pytest.approx(left / total, abs=1e-12)
            assert one["emptied"].item() == 0 or not label.startswith("factor")
    assert (data["recall"].sel(filter="self 0.1", direction="q2c") == 0).all()  # a copy scores what the positive does
    assert data["published"].values.tolist() == [False, True, True, True]


def kept_of_a_weakened(queries, rule, scale=10.0, factor=0.5):
    """The push that weakened negatives keep: e^{λ f s} in the softmax, and f in the weight."""
    total = 0.0
    for entries in queries:
        own = entries[0][5]
        whole = [scale * each[4] * (factor if rule(each[4], own) else 1) for each in entries]
        away = math.exp(scale * own) + sum(map(math.exp, whole))
        held = [
            scale * factor * math.exp(logit) / away
            for logit, each in zip(whole, entries, strict=True)
            if rule(each[4], own)
        ]
        total += sum(held)
    return total


def test_the_two_tables_have_one_part_of_the_negatives_and_of_the_push():
    """The rule `guide` and the filter `guide` are one set of pairs, in batches of 16, 16, 16 and 2 rows."""
    generator = torch.Generator().manual_seed(0)
    query, candidate = (torch.randn(50, 6, generator=generator) for _ in range(2))
    teacher = torch.rand(50, 50, generator=generator)
    embeddings = Embeddings(query, candidate, teacher=teacher)
    for loss in ("ntxent", "triplet"):
        data = measures.audit(embeddings, loss, batch_size=16, rules=["guide"], filters={"guide": [0.0]})
        rule, replayed = data.sel(rule="guide"), data.isel(filter=0)
        np.testing.assert_allclose(rule["share"], replayed["filter_share"])
        np.testing.assert_allclose(rule["push_share"], replayed["filter_push"])
        options = {"filter": "guide", "filter_margin": 0, "scale": 10} if loss == "ntxent" else None
        if options:
            counted = measures.count(embeddings, losses.load("mnrl", options), batch_size=16)
            entries = reports.document("count", counted)["directions"]
            parts = [entry["masked_push"]["mean"] for entry in entries.values()]
            np.testing.assert_allclose(parts, rule["push_share"], rtol=1e-6)


def test_a_guide_suspects_what_it_scores_at_or_above_the_positive():
    teacher = torch.rand(30, len(PASSAGES), generator=torch.Generator().manual_seed(5))
    teacher[:4] = torch.nan
    embeddings = questions(teacher=teacher)
    options = {"batch_size": "all", "only": "q2c", "filters": {"guide": [0.0, 0.1]}, "against": ["guide"]}
    data = measures.audit(embeddings, "ntxent", rules=["group", "guide"], **options)
    expected = {"guide": 0, "guide 0.1": 0}
    group = embeddings.query_group.tolist()
    for query in range(4, 30):
        own = teacher[query, group[query]]
        for other in range(30):  # passages of all pairs of the batch
            if other != query:
                expected["guide"] += int(teacher[query, group[other]] >= own)
                expected["guide 0.1"] += int(teacher[query, group[other]] > own - 0.1)
    assert data["suspects"].sel(rule="guide").item() == expected["guide"] > 0
    assert data["filter_share"].sel(filter="guide 0.1").item() == pytest.approx(expected["guide 0.1"] / (30 * 29))
    assert data["recall"].sel(filter="guide 0.1").item() == 1
    listed = data.isel(pair=0)
    assert listed["guide_score"].item() == pytest.approx(
        teacher[int(listed["query_index"]), int(listed["candidate_index"])].item()
    )


def test_rules_that_the_data_allow_are_the_usual_ones():
    assert suspicions(None, questions()) == ("group", "text", "neighbours")
    bare = Embeddings(torch.randn(4, 3), torch.randn(4, 3))
    assert suspicions(None, bare) == ("group", "neighbours")
    taught = Embeddings(torch.randn(4, 3), torch.randn(4, 3), teacher=torch.rand(4, 4))
    assert suspicions(None, taught) == ("group", "guide", "neighbours")


def test_marks_of_the_rows_are_rules_and_known_positives():
    pairs = torch.tensor([[0, 1], [9, 2]])
    embeddings = questions().marked({"relabelled": pairs})
    data = measures.audit(embeddings, "ntxent", batch_size="all", rules=["text"], only="q2c")
    assert (
        data["rule"].values.tolist() == ["text", "relabelled", "any rule"]
        and data.attrs["against"] == "text, relabelled"
    )
    number = [int((embeddings.query_group == group).sum()) for group in (1, 2)]
    assert number == [4, 4] and data["suspects"].sel(rule="relabelled") == sum(number)
    assert marks.of("x", pairs, 30, 8).labels == ["x"]


def test_hard_negatives_are_drawn_with_their_queries():
    named = torch.full((30, 1), -1)
    named[5] = 7
    embeddings = questions(negatives=named)
    (batch,) = sampling.plan(embeddings, batch_size="all", copies="keep").batches
    assert batch.paired and batch.extra == 0  # it is there already, as a passage of its own
    rows = Embeddings(torch.randn(3, 4), torch.randn(5, 4), [0, 1, 2], [0, 1, 2, 7, 8], negatives=[[3], [4], [-1]])
    rows = rows.marked({"wrong": torch.tensor([[0, 3]])})
    data = measures.audit(rows, "ntxent", batch_size="all", rules=["group"], only="q2c")
    assert data["suspects"].sel(rule="wrong") == 1
    assert (data["own_hard"].item(), data["drawn"].item()) == (1, 1)
    assert "own hard negative" in " ".join(reports.tables("audit", data)[2].text().split())
    assert not data.attrs.get("notes")


def test_a_loss_with_a_filter_is_audited_without_it():
    options = {"batch_size": SIZE, "rules": ["group"]}
    plain, filtered = (
        measures.audit(questions(), losses.load("mnrl", {"filter": name}), **options) for name in ("none", "percent")
    )
    assert np.array_equal(plain["push"], filtered["push"]) and "filter='none'" in filtered.attrs["loss_repr"]


def test_further_directions_are_part_of_the_push_and_not_suspected():
    wide = losses.load("mnrl", {"directions": ("query-candidate", "query-query")})
    options = {"batch_size": SIZE, "rules": ["group"], "only": "q2c"}
    plain, data = (measures.audit(questions(), loss, **options) for loss in (losses.load("mnrl"), wide))
    assert data["suspects"].values.tolist() == plain["suspects"].values.tolist()
    assert data["push_share"].values[0, 0] < plain["push_share"].values[0, 0]


def test_rows_of_one_group_can_be_left_out():
    data = measures.audit(questions(), "ntxent", batch_size=SIZE, rules=["group"], same_group="ignore")
    assert not data["suspects"].values.any() and data.sizes["pair"] == 0


def test_labelled_sets_proxies_and_distances():
    names = ["a cat", "a dog", "a cat", "a bird", "a fish", "a dog"]
    labelled = Embeddings.labelled(torch.randn(6, 3), [0, 0, 1, 1, 2, 2], names=names)
    data = measures.audit(labelled, "triplet_squared", batch_size="all", rules=["text"])
    found = {tuple(map(int, pair)) for pair in zip(data["query_index"], data["candidate_index"], strict=True)}
    of_class = [{names[row] for row in (2 * label, 2 * label + 1)} for label in range(3)]
    pairs = {(i, j) for i in range(6) for j in range(6) if i // 2 != j // 2}
    assert found == {(i, j) for i, j in pairs if names[j] in of_class[i // 2] or names[i] in of_class[j // 2]}
    assert 0 < len(found) < len(pairs)
    assert [str(each).split()[0] for each in data["filter"].values] == ["self"] * 4  # no percent of a distance
    proxies = Embeddings.labelled(torch.randn(6, 3), [0, 0, 1, 1, 2, 2], proxies=torch.randn(3, 3))
    assert not measures.audit(proxies, "proxynca", rules=["group"])["suspects"].values.any()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rules": ["groups"]}, "unknown rule 'groups': did you mean 'group'"),
        ({"rules": []}, "rules: none is given"),
        ({"rules": ["guide"]}, "rule guide: there are no scores of a guide"),
        ({"filters": {"guide": []}}, "filter guide: there are no scores of a guide"),
        ({"filters": {"selfie": []}}, "unknown filter 'selfie': did you mean 'self'"),
        ({"filters": {"percent": [1.5]}}, "percent must be"),
        ({"against": ["text"], "rules": ["group"]}, "against: unknown rule 'text'"),
        ({"neighbours": 0}, "neighbours: 0, expected an integer"),
        ({"only": "i2t"}, "unknown direction 'i2t'"),
        ({"loss": "triplet", "filters": {"factor": []}}, "filter factor: it weakens the logits of a softmax"),
        ({"loss": "triplet_squared", "filters": {"percent": []}}, "has no meaning for squared_euclidean scores"),
    ],
)
def test_bad_options_get_one_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.audit(questions(), **{"loss": "ntxent", "batch_size": SIZE} | options)


def test_texts_are_asked_for_where_there_are_none():
    with pytest.raises(InputError, match="rule text: the rows have no names"):
        measures.audit(Embeddings(torch.randn(4, 3), torch.randn(4, 3)), rules=["text"])


@pytest.fixture
def file(tmp_path):
    embeddings = questions()
    query, candidate = embeddings.names
    np.savez(
        tmp_path / "rows.npz",
        query=embeddings.query.numpy(),
        candidate=embeddings.candidate.numpy(),
        query_group=embeddings.query_group.numpy(),
        candidate_group=embeddings.candidate_group.numpy(),
        query_name=np.array(query),
        candidate_name=np.array(candidate),
    )
    return tmp_path / "rows.npz"


def invoked(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_list_to_relabel_has_all_pairs(file):
    given = ["audit", file, "--batch-size", SIZE]
    out = file.parent / "list.json"
    done = invoked(*given, "--out", out)
    assert done.exit_code == 0 and f"wrote {out}" in done.stderr, done.stderr
    data = measures.audit(cocos.open(file), batch_size=SIZE)
    rows = json.loads(out.read_text())["suspected"]
    assert len(rows) == data.sizes["pair"] and rows[0]["pair_push"] == data["pair_push"].values[0]
    unread = [row for row in rows if "group" not in row["rules"]]
    assert f"of {len(unread)} pairs with the largest push" in done.stdout
    assert invoked(*given, "--out", file.parent / "audit.nc").exit_code == 0
    assert cocos.results.open(file.parent / "audit.nc")["suspects"].equals(data["suspects"])


def test_the_json_document_has_rules_filters_and_pairs(file):
    done = invoked("audit", file, "--batch-size", SIZE, "--json")
    found = json.loads(done.stdout)
    entry = found["directions"]["q2c"]
    assert {"percent 0.95", "self 0.1"} <= entry["filters"].keys()
    assert found["suspected"][0]["rules"] and found["pairs"] >= len(found["suspected"])
    assert 0 < entry["rules"]["any rule"]["push_share"] <= 1 and found["against"] == ["group", "text"]


def test_the_table_says_how_much_push_is_wrong_and_what_removes_it(file):
    text = invoked("audit", file, "--batch-size", SIZE).stdout
    data = measures.audit(cocos.open(file), batch_size=SIZE)
    share = 100 * float(data["push_share"].sel(direction="q2c", rule="any rule"))
    assert f"{share:.1f} % of the push, " in " ".join(text.split())


def test_the_picture_has_the_push_that_is_known_and_the_push_that_is_not():
    data = measures.audit(questions(), "ntxent", batch_size=SIZE, rules=["group", "neighbours"])
    ax = plt.figure().add_subplot()
    cocos.plots.audit(data, ax=ax)
    rows = 3 + data.sizes["filter"]
    widths = np.array([patch.get_width() for patch in ax.patches]).reshape(2, 2, rows) / 100  # whole and known parts
    for place, direction in enumerate(("q2c", "c2q")):
        one = data.sel(direction=direction)
        removed = one["filter_push"].values - one["filter_left"].values
        np.testing.assert_allclose(widths[place, 0], [*one["push_share"].values, *removed])
        right = np.nan_to_num(one["push_precision"].values)
        np.testing.assert_allclose(widths[place, 1, 3:], right * removed, atol=1e-12)
        line = ax.lines[place].get_xdata()[0] / 100
        assert line == pytest.approx(float(one["push_share"].sel(rule="group")))  # the rule that is known
    share = 100 * float(data["push_share"].isel(rule=-1).max())
    assert ax.get_title().startswith(f"{share:.0f} % of the push")
    assert [each.get_text() for each in ax.get_yticklabels()][-1] == "filter factor 0.1*"
    with pytest.raises(InputError, match="rules and filters of one audit"):
        cocos.plots.audit([data, data])
    bare = measures.audit(questions(), "triplet_squared", batch_size=SIZE, same_group="ignore", rules=["group"])
    assert "No negative" in cocos.plots.audit(bare, ax=ax).get_title()
    plt.close("all")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "list.txt"], "expected .nc or .json"),
        (["--out", "missing/list.json"], "there is no folder missing"),
        (["--out", f"{'n' * 300}.json"], "n.json: the name is too long for a file"),
        (["--batch-size", "1"], "batch size: 1, expected an integer of at least 2"),
    ],
)
def test_wrong_usage_is_one_sentence(file, arguments, sentence, monkeypatch):
    monkeypatch.chdir(file.parent)
    done = invoked("audit", file, *arguments)
    assert done.exit_code == 2 and sentence in done.stderr and "Traceback" not in done.stderr
    assert {each.name for each in file.parent.iterdir()} == {"rows.npz"}


def test_losses_without_a_push_on_negatives_are_refused():
    loss = type("Strange", (type(losses.load("ntxent")),), {"graded": True})()
    with pytest.raises(InputError, match="graded pairs"):
        measures.audit(questions(), loss, batch_size=SIZE)


@pytest.mark.slow
def test_the_page_says_what_the_embedded_example_shows():
    file = resources.files("cocos") / "example" / "emoji_ntxent.pt"
    data = measures.audit(cocos.open(file), filters={"self": [0.1], "percent": [0.95]}, only="i2t", neighbours=1)
    one = data.isel(direction=0)
    parts = [one[name].sel(rule="any rule").item() for name in ("share", "push_share")]
    parts += [one["filter_push"].sel(filter=label).item() for label in ("self 0.1", "percent 0.95")]
    share = f"{100 * parts[0]:.2f} %"
    push, own, percent = (f"{100 * part:.1f} %" for part in parts[1:])
    page = " ".join((Path(__file__).parent.parent / "docs/howto/audit.md").read_text("utf-8").split())
    assert f"{share} of the negatives of the images are suspected by some rule" in page
    assert f"and they receive {push} of the push" in page
    assert f"`self` as published removes {own} of the push and `percent` {percent}." in page
    assert f"{len(cocos.open(file).embed().query):,} emoji with five captions each" in page


def test_the_finding_stands_first_and_rows_without_any_are_left_out(tmp_path):
    """Of clean data there were ten rows of zeros before the sentence."""
    clean = torch.eye(40) + 0.01 * torch.randn(40, 40, generator=torch.Generator().manual_seed(0))
    found = reports.tables("audit", measures.audit(cocos.Embeddings(torch.eye(40), clean), batch_size=20))
    text = "\n".join(map(str, found))
    assert text.startswith("q2c: likely false negatives: none\nc2q: likely false negatives: none")
    assert not found[0].rows


def test_copies_of_positives_carry_their_push():
    """Against a loop over one batch, in which most candidates are copies."""
    generator = torch.Generator().manual_seed(0)
    texts = torch.nn.functional.normalize(torch.randn(5, 8, generator=generator, dtype=torch.float64), dim=1)
    text = torch.tensor([0] * 12 + [1] * 4 + [2, 3, 4])
    query = torch.nn.functional.normalize(texts[text] + torch.randn(19, 8, generator=generator).double() / 2, dim=1)
    embeddings = Embeddings(query, texts[text])
    data = measures.audit(embeddings, "ntxent", batch_size="all", rules=["copy"], only="q2c")
    total = copied = 0.0
    for row in range(19):
        shares = (query[row] @ texts[text].T / 0.1).softmax(dim=0)
        on_copies = float(shares[text == text[row]].sum() - shares[row])
        copied, total = copied + on_copies, total + float(1 - shares[row])
    numbers = data.sel(direction="q2c", rule="copy")
    assert int(numbers["suspects"]) == 12 * 11 + 4 * 3
    assert float(numbers["push_share"]) == pytest.approx(copied / total, rel=1e-9)


def test_copy_rule_without_copies_is_refused():
    with pytest.raises(InputError, match="no row equals another"):
        measures.audit(Embeddings(torch.eye(4), torch.eye(4)), rules=["copy"])
