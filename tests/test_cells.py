"""Neighbours by cells: all cells give the exact answer, few give less, and the recall that is told is the true one."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import measures
from cocos.base.errors import InputError
from cocos.commands import app
from cocos.engine import cells
from cocos.measures.audit import _exactly


def clustered(number=600, width=12, seed=0):
    """Pairs around 40 centres, of which neighbours of other groups are near."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(40, width, generator=generator)
    query = centre[torch.arange(number) % 40] + 0.5 * torch.randn(number, width, generator=generator)
    return cocos.Embeddings(query, query + 0.4 * torch.randn(number, width, generator=generator))


def by_hand(embeddings, keep):
    """The nearest candidates of each query, and queries of each candidate, by whole matrices in float64."""
    score = cocos.scores.METRICS["cosine"](embeddings.query.double(), embeddings.candidate.double())
    if embeddings.shared:
        score.fill_diagonal_(-torch.inf)
    return score.topk(keep, dim=1).indices, score.T.topk(keep, dim=1).indices


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("keep", [1, 3])
def test_all_cells_find_the_nearest_rows_and_few_most_of_them(labelled, keep):
    embeddings = clustered()
    if labelled:
        embeddings = cocos.Embeddings.labelled(embeddings.query, torch.arange(600) // 2)
    expected, _ = by_hand(embeddings, keep)
    side, found = embeddings.single(embeddings.directions[0]), {}
    for visited in (1, 3, 20):
        near = cells.nearest(side, "cosine", keep, 20, visited, seed=1)
        found[visited] = float((near[:, :, None] == expected[:, None]).any(dim=1).float().mean())
    assert torch.equal(near, expected)
    assert 0.3 < found[1] < found[3] < found[20] == 1
    assert torch.equal(_exactly(side, "cosine", keep, torch.tensor([5, 77])), expected[[5, 77]])


def test_an_audit_by_all_cells_is_the_audit_and_by_few_tells_its_recall():
    embeddings = clustered()
    options = {"rules": ["neighbours"], "batch_size": 100, "neighbours": 2}
    whole = measures.audit(embeddings, **options)
    every = measures.audit(embeddings, cells=20, visited=20, **options)
    assert every.drop_attrs().identical(whole.drop_attrs())
    assert (every.attrs["cell_recall"], every.attrs["mutual_recall"]) == (1, 1)
    few = measures.audit(embeddings, cells=20, visited=1, **options)
    one, other = by_hand(embeddings, 2)
    near = [cells.nearest(side, "cosine", 2, 20, 1, seed=0) for side in (embeddings.single("q2c"), embeddings.flip())]
    hits = (one[:, :, None] == near[0][:, None]).any(dim=2)
    assert few.attrs["exact_rows"] == 600
    assert few.attrs["cell_recall"] == pytest.approx(float(hits.float().mean()))
    pairs = [{(q, int(c)) for q in range(600) for c in row[q]} for row in (one, near[0])]
    back = [{(int(q), c) for c in range(600) for q in row[c]} for row in (other, near[1])]
    exact, seen = (a & b for a, b in zip(pairs, back, strict=True))
    assert few.attrs["mutual_recall"] == pytest.approx(len(exact & seen) / len(exact))
    assert 0 < few.attrs["mutual_recall"] < few.attrs["cell_recall"] < 1
    assert int(few["suspects"].sum()) < int(whole["suspects"].sum())
    assert "neighbours are looked for in 1 of 20 cells: of 600 rows" in few.attrs["notes"]
    most = measures.audit(embeddings, cells=900, visited=700, **options)
    assert "neighbours are looked for in 600 of 600 cells: of 600 rows" in most.attrs["notes"]


def test_the_command_prints_the_recall(tmp_path):
    held = clustered()
    np.savez(tmp_path / "e.npz", query=held.query, candidate=held.candidate)
    options = ["audit", str(tmp_path / "e.npz"), "--cells", "10", "--visited", "3", "--rules", "neighbours"]
    done = CliRunner().invoke(app, [*options, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["cells"]
    assert (told["cells"], told["visited"], told["exact_rows"]) == (10, 3, 600)
    assert 0.5 < told["cell_recall"] <= 1
    assert f"{told['cell_recall']:.3g} of the nearest rows are found" in CliRunner().invoke(app, options).output


def test_cells_without_their_rule_are_refused():
    with pytest.raises(InputError, match="cells 10: only the rule neighbours"):
        measures.audit(clustered(), rules=["group"], cells=10)
    with pytest.raises(InputError, match="visited"):
        measures.audit(clustered(), cells=10, visited=0)
