"""Token vectors of late interaction: scores beside a slow loop, files, and every measure that needs no row vector."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, losses
from cocos.commands import app
from cocos.counting import maxsim
from cocos.embeddings import tokens as module
from cocos.reports import table

WIDTH = 6


def flat(rows, shortest, longest, seed):
    """Tokens one row behind the other, and their lengths, no two neighbours alike."""
    generator = torch.Generator().manual_seed(seed)
    lengths = shortest + torch.arange(rows) % (longest - shortest + 1)
    return torch.randn(int(lengths.sum()), WIDTH, generator=generator, dtype=torch.float64), lengths


def made(queries=5, candidates=7, **more):
    (query, asks), (candidate, asked) = flat(queries, 2, 4, 0), flat(candidates, 3, 6, 1)
    groups = {"query_group": torch.arange(queries), "candidate_group": torch.arange(candidates)}
    return cocos.Tokens(query, candidate, asks, asked, **groups | more)


def unit(vectors):
    return [[x / math.hypot(*row) for x in row] for row in vectors.tolist()]


def slow(found, scoring, top=None, impute=True):
    """Scores token by token. XTR: arXiv:2304.01982, eq. 4 (training) and eq. 5 (retrieval)."""
    queries = [unit(part) for part in found.query_tokens.split(found.query_lengths.tolist())]
    documents = [unit(part) for part in found.candidate_tokens.split(found.candidate_lengths.tolist())]
    scores = []
    for query in queries:
        rows = [
            [[math.fsum(a * b for a, b in zip(q, d, strict=True)) for d in each] for q in query] for each in documents
        ]
        own = []
        for similar in rows:
            terms = []
            for t, line in enumerate(similar):
                if scoring != "xtr":
                    terms.append(max(line))
                    continue
                least = sorted((s for other in rows for s in other[t]), reverse=True)[top - 1]
                retrieved = [s for s in line if s >= least]
                terms += [max(retrieved)] if retrieved else [least] if impute else []
            own.append(math.fsum(terms) / (1 if scoring == "sum" else max(1, len(terms))))
        scores.append(own)
    return torch.tensor(scores, dtype=torch.float64)


@pytest.mark.parametrize("most", [1, 60, 2**24])
@pytest.mark.parametrize(
    "options",
    [{"scoring": "sum"}, {"scoring": "mean"}]
    + [{"scoring": "xtr", "top": top, "impute": impute} for top in (1, 4, 500) for impute in (True, False)],
)
def test_scores_are_those_of_a_loop_in_blocks_of_any_size(monkeypatch, options, most):
    monkeypatch.setattr(module, "MAX_SIMILARITIES", most)
    found, expected = made(**options), dict(options)
    if expected.get("top") == 500:  # as many as there are
        expected["top"] = int(found.candidate_lengths.sum())
    scores = found.scores(torch.arange(5), torch.arange(7))
    torch.testing.assert_close(scores, slow(found, **expected), rtol=1e-12, atol=1e-12)


def test_rows_are_scored_in_the_order_that_is_asked_for():
    found = made()
    every, asks, asked = found.scores(torch.arange(5), torch.arange(7)), torch.tensor([3, 0]), torch.tensor([6, 2, 2])
    torch.testing.assert_close(found.scores(asks, asked), every[asks][:, asked])


def test_padded_tokens_and_flat_ones_are_the_same():
    one = made()
    (query, there), (candidate, here) = (
        one.padded(side, torch.arange(n)) for side, n in (("query", 5), ("candidate", 7))
    )
    other = cocos.Tokens(query, candidate, there.sum(1), here.sum(1), one.query_group, one.candidate_group)
    assert torch.equal(one.query_tokens, other.query_tokens)
    expected = maxsim.score(query, candidate, there, here).scores
    torch.testing.assert_close(other.scores(torch.arange(5), torch.arange(7)), expected)


def test_scores_follow_the_dtype_and_tokens_stay():
    found = made().to(dtype=torch.float32)
    assert found.scores(torch.arange(2), torch.arange(2)).dtype == torch.float32
    assert found.query_tokens.dtype == torch.float64


def test_a_count_is_that_of_the_scores_of_each_batch():
    """Two batches of pairs, and the query's hard negatives in its batch."""
    found = made(12, 12, negatives=torch.tensor([[(row + 5) % 12] for row in range(12)]))
    plan = cocos.batches.plan(found, batch_size=6, seed=1)
    ntxent = losses.load("ntxent", temperature=0.5)
    data = cocos.measures.count(found, ntxent, batch_size=6, seed=1)
    for number, batch in enumerate(plan.batches):
        scores = slow(found, "sum")[batch.query_index][:, batch.candidate_index]
        positive = batch.query_index[:, None] == batch.candidate_index
        weights = ntxent.weight(cocos.Pairs(scores, positive))
        expected = ((0.5 * weights > 0.01) & ~positive).sum(dim=1)
        assert data["contributing"][0, number, :6].values.tolist() == expected.tolist()
    assert {"in-batch", "own hard"} <= set(data["source"].values.tolist())


@pytest.mark.parametrize("scoring", ["sum", "mean"])
@pytest.mark.parametrize("name", ["ntxent", "triplet"])
def test_the_push_of_each_query_token_is_that_of_autograd(scoring, name):
    found, row = made(7, 7, scoring=scoring), 2
    loss = losses.load(name, {"temperature": 0.3} if name == "ntxent" else {"margin": 3.0})
    data = cocos.measures.contributors(found, loss, row=row, batch_size="all", top=None)
    leaf = found.padded("query", torch.tensor([row]))[0].requires_grad_()
    documents, there = found.padded("candidate", torch.arange(7))
    scores = maxsim.score(leaf, documents, None, there).scores / (leaf.shape[1] if scoring == "mean" else 1)
    positive = torch.arange(7)[None] == row
    weights = cocos.weights.analytic(loss, cocos.Pairs(scores.detach(), positive))
    assert (weights[~positive] > 0).any()
    (scores * torch.where(positive, 0, weights)).sum().backward()
    expected = leaf.grad[0].norm(dim=1)
    np.testing.assert_allclose(data["token_push"].values, (expected / expected.sum()).numpy(), rtol=1e-10)
    similar = (
        torch.nn.functional.normalize(leaf.detach(), dim=2)[0] @ torch.nn.functional.normalize(documents, dim=2).mT
    )
    matched = similar.masked_fill(~there[:, None], -2).argmax(dim=2)
    assert data["match"].values.tolist() == matched[data["candidate_index"].values].tolist()
    summed = cocos.measures.contributors(made(7, 7, scoring="xtr", top=3), loss, row=row, batch_size="all")
    assert "token" not in summed.dims


def write(folder, kind="npz", **changed):
    """A file of tokens, with some arrays changed or left out (None)."""
    found = made(24, 24)
    arrays = {
        "query_tokens": found.query_tokens.float().numpy(),
        "candidate_tokens": (found.candidate_tokens).float().numpy(),
        "query_lengths": found.query_lengths.numpy(),
        "candidate_lengths": found.candidate_lengths.numpy(),
    }
    arrays = {name: value for name, value in (arrays | changed).items() if value is not None}
    path = folder / f"tokens.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)
    elif kind == "safetensors":
        from safetensors.numpy import save_file

        save_file({name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}, path)
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        def lists(side):
            ends = np.cumsum(arrays[f"{side}_lengths"])[:-1]
            return [part.tolist() for part in np.split(arrays[f"{side}_tokens"], ends)]

        columns = {
            f"{side}_tokens": pa.array(lists(side), pa.list_(pa.list_(pa.float32()))) for side in ("query", "candidate")
        }
        pq.write_table(pa.table(columns), path, row_group_size=10)
    return path


def call(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output + done.stderr
    return done


def test_every_container_holds_the_same_tokens(tmp_path):
    documents = []
    for kind in ("npz", "safetensors", "parquet"):
        found = json.loads(call("count", write(tmp_path, kind), "--batch-size", 8, "--json").stdout)
        assert found["checkpoint"]["format"] == "tokens"
        documents.append(found["directions"])
    assert documents[0] == documents[1] == documents[2]


def test_commands_that_need_no_vector_of_a_row_take_tokens(tmp_path):
    path = write(tmp_path)
    (other := tmp_path / "other").mkdir()
    tokens = write(other, query_tokens=made(24, 24).query_tokens.float().numpy()[::-1].copy())
    ranked = json.loads(call("evaluate", path, "--json").stdout)["directions"]["q2c"]
    scores = slow(made(24, 24), "sum")
    ranks = (scores >= scores.diagonal()[:, None]).sum(dim=1)
    assert ranked["MRR"]["mean"] == pytest.approx(100 * float((1 / ranks.double()).mean()), rel=1e-9)
    for command in ("count", "audit", "replay", "whatif", "temperature", "query"):
        row = ["--row", 3] if command == "query" else []
        json.loads(call(command, path, "--loss", "ntxent", "-p", "temperature=1", *row, "--json").stdout)
    for more in ([], ["--loss", "ntxent"]):
        assert json.loads(call("diff", path, tokens, *more, "--json").stdout)["directions"]
    call("report", path, "--out", tmp_path / "page.html")
    assert "needs the vectors of queries and candidates" in call("decompose", path, code=2).stderr


def test_temperature_says_the_span_of_the_scores_and_what_known_temperatures_make_of_it(tmp_path):
    done = call("temperature", write(tmp_path), "--batch-size", 24, "--json")
    found = json.loads(done.stdout)["batch_sizes"]["24"]
    scores = slow(made(24, 24), "sum")
    assert found["span"] == pytest.approx([float(scores.min()), float(scores.max())], rel=1e-6)
    for at in (1.0, 0.02):
        weights = losses.load("ntxent", temperature=at).weight(cocos.Pairs(scores, torch.eye(24).bool()))
        push = torch.where(torch.eye(24).bool(), 0, weights)
        part = push / push.sum(dim=1, keepdim=True)
        effective = torch.where(part > 0, -part * part.log(), 0).sum(dim=1).exp().mean()
        assert found["effective_at"][f"{at:g}"] == pytest.approx(float(effective), rel=1e-5)
    said = call("temperature", write(tmp_path), "--batch-size", 24).stdout.replace("\n", " ")
    low, high = found["span"]
    assert (
        f"MaxSim spans {low:.3g} to {high:.3g}: temperature 1 gives {found['effective_at']['1']:.1f} effective" in said
    )


def test_a_replay_says_what_a_larger_batch_brings(tmp_path):
    """Does a cached batch of 12 bring more negatives than one of 6? As colpali's issue 416 asks of 192 and 128."""
    options = ("--loss", "ntxent", "-p", "temperature=0.5", "--batch-size", 6, "--what", "batch-size=12", "--json")
    call("replay", write(tmp_path), *options)
    data = cocos.measures.replay(made(24, 24), losses.load("ntxent", temperature=0.5), "batch_size=12", batch_size=6)
    counted = [
        cocos.measures.count(made(24, 24), losses.load("ntxent", temperature=0.5), batch_size=n) for n in (6, 12)
    ]
    expected = [float(each["contributing"].mean()) for each in counted]
    found = data["mean"].sel(direction="q2c", metric="contributing").values
    np.testing.assert_allclose(found, expected)
    assert expected[1] > expected[0]


def test_the_table_of_a_query_names_its_tokens():
    data = cocos.measures.contributors(made(7, 7), losses.load("ntxent", temperature=0.3), row=2, batch_size="all")
    place = int(data["token_push"].values.argmax())
    said = f"token {place} has {100 * float(data['token_push'][place]):.1f} % (most by token"
    assert said in str(table("contributors", data))


BAD = {
    "lengths that do not add up": ({"query_lengths": np.full(24, 2)}, "query_lengths add up to 48"),
    "a row without a token": ({"query_lengths": np.zeros(24, dtype=int)}, "at least one token"),
    "no lengths": ({"candidate_lengths": None}, "without candidate_lengths"),
    "lengths of another kind": ({"candidate_lengths": np.ones(24)}, "expected whole numbers"),
    "one side": ({"candidate_tokens": None, "candidate_lengths": None}, "has no array 'candidate_tokens'"),
    "an unknown array": ({"query_length": np.ones(24)}, "query_lengths"),
    "an unknown scoring": ({"scoring": "max"}, "scoring"),
    "xtr without a top": ({"scoring": "xtr"}, "top: None"),
    "a top of nothing": ({"scoring": "xtr", "top": 0}, "top: 0"),
    "a top that is no number": ({"scoring": "xtr", "top": "many"}, "expected a whole number"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(tmp_path, name):
    changed, said = BAD[name]
    done = call("count", write(tmp_path, **changed), code=2)
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("value", "said"), [(math.nan, "NaN or infinity in row"), (math.inf, "NaN"), (0.0, "a zero vector")]
)
def test_tokens_without_a_cosine_are_refused(value, said):
    found = made()
    spoilt = found.candidate_tokens.clone()
    spoilt[3 + 4] = value  # the first rows have 3 and 4 tokens, so this one is of row 2
    with pytest.raises(InputError, match=said) as refused:
        cocos.Tokens(found.query_tokens, spoilt, found.query_lengths, found.candidate_lengths)
    assert "row 2" in str(refused.value)
    with pytest.raises(InputError, match="give candidate_lengths"):
        cocos.Tokens(torch.ones(2, 3, 4), torch.ones(2, 3, 4) * torch.tensor([1.0, 1.0, 0.0])[:, None])


def test_parquet_of_something_else_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for columns, said in (
        ({"query_tokens": ["a"], "candidate_tokens": ["b"]}, "expected a list of tokens"),
        ({"query_tokens": [[[1.0], [1.0, 2.0]]], "candidate_tokens": [[[1.0]]]}, "tokens of 2 widths"),
    ):
        pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
        assert said in call("count", tmp_path / "bad.parquet", code=2).stderr.replace("\n", " ")


def test_a_loss_of_distances_needs_rows():
    with pytest.raises(InputError, match="euclidean"):
        cocos.measures.count(made(7, 7), "triplet_euclidean", batch_size=4)


def test_scores_are_those_of_pylate():
    """PyLate sets padding to 0, so that it wins over a best cosine below 0 in a document that is not the longest."""
    scoring = pytest.importorskip("pylate.scores")
    found = made()
    sides = [found.padded(side, torch.arange(n)) for side, n in (("query", 5), ("candidate", 7))]
    (query, there), (candidate, here) = ((torch.nn.functional.normalize(own, dim=2), mask) for own, mask in sides)
    theirs = scoring.colbert_scores(query, candidate, queries_mask=there, documents_mask=here)
    best = torch.einsum("qtd,cud->qctu", query, candidate).masked_fill(~here[None, :, None], -torch.inf).amax(dim=3)
    below = torch.where(there[:, None] & ~here.all(dim=1)[None, :, None], (-best).clamp(min=0), 0).sum(dim=2)
    assert (below > 0).any() and (below == 0).any()
    torch.testing.assert_close(found.scores(torch.arange(5), torch.arange(7)) + below, theirs)
