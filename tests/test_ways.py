"""The gradient of every pair, and ways of computing a loss: caching, chunks, processes, mini-batches, dtypes."""

import pytest
import torch
from torch.nn.functional import normalize

import children
import cocos
from cocos import measures
from cocos.base.errors import InputError
from cocos.measures.same_gradient import way
from cocos.measures.shared.pair_gradients import (
    OWN_COORDINATE,
    PAIR_KINDS,
    PairRows,
    RowKinds,
    drawn,
    gradients,
    synthetic,
)

CPU = torch.device("cpu")


def verdict(a, b, *more, **options):
    return measures.same_gradient(a, b, *more, **options).attrs


# ---------------------------------------------------------------------------------------------------- the numbers


def slow_pairs(loss, rows, step=1e-6):
    """∂ loss / ∂ cosine of query i and another row, times one over N, moving one score at a time."""
    count = rows.number
    every = normalize(rows.matrix[count:], dim=1)
    scores = (1 - OWN_COORDINATE**2) * normalize(rows.query, dim=1) @ every.T
    positive = torch.eye(count, len(every), dtype=torch.bool)
    found = torch.zeros_like(scores)
    for i in range(count):
        for j in range(len(every)):
            moved = []
            for sign in (1, -1):
                other = scores.clone()
                other[i, j] += sign * step
                moved.append(float(loss(cocos.Pairs(other, positive)).mean()))
            found[i, j] = (moved[0] - moved[1]) / (2 * step)
    return found


@pytest.mark.parametrize("name", ["ntxent", "triplet", "smoothap"])
@pytest.mark.parametrize("hard", [0, 2])
def test_the_gradient_of_a_pair_is_that_of_its_score(name, hard):
    rows, loss = synthetic(6, hard, 3, CPU), cocos.losses.load(name)
    found = gradients(name, way(name), rows).pairs
    slow = slow_pairs(loss, rows)
    torch.testing.assert_close(found[:6, 6:], slow, rtol=1e-5, atol=1e-7 * float(slow.abs().max()))
    scores = (1 - OWN_COORDINATE**2) * rows.query @ rows.matrix[6:].T
    closed = loss.weight(cocos.Pairs(scores, torch.eye(*scores.shape, dtype=torch.bool)))
    torch.testing.assert_close(found[:6, 6:], closed / 6, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[6:, :6], closed.T / 6, rtol=1e-9, atol=1e-12)  # as it reaches the candidates
    assert not found[:6, :6].any() and not found[6:, 6:].any()


def test_the_rows_add_up_from_their_pairs():
    rows = synthetic(8, 2, 0, CPU)
    found = gradients("ntxent", way("ntxent"), rows)
    matrix = rows.matrix
    along = found.pairs @ matrix - (found.pairs * (matrix @ matrix.T)).sum(dim=1, keepdim=True) * matrix
    torch.testing.assert_close(found.rows, along, rtol=1e-3, atol=1e-4)  # at scores that differ by one part in 65536


def test_norms_of_the_rows_do_not_enter_the_pairs_of_a_cosine_loss():
    rows = synthetic(6, 1, 0, CPU)
    lengths = torch.linspace(0.5, 20, len(rows.matrix), dtype=torch.float64)[:, None]
    stretched = rows.like(lengths * rows.matrix)
    plain, other = (gradients("ntxent", way("ntxent"), each) for each in (rows, stretched))
    torch.testing.assert_close(plain.pairs, other.pairs, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(plain.rows, lengths * other.rows, rtol=1e-9, atol=1e-12)


def test_kinds_of_pairs():
    layout = RowKinds(2, 2, CPU)  # q0 q1 c0 c1 h00 h01 h10 h11
    kind = [[PAIR_KINDS[k] for k in row] for row in layout.kind.tolist()]
    assert kind[0] == [
        *("query-query", "query-query", "positives", "in-batch"),
        *("own hard", "own hard", "others' hard", "others' hard"),
    ]
    assert kind[4][:2] == ["own hard", "others' hard"] and set(kind[4][2:]) == {"candidate-candidate"}
    assert torch.equal(layout.kind, layout.kind.T)


# ---------------------------------------------------------------------------------------------------- the ways

SAME_WAYS = ["chunks=32", "chunks=5", "ranks=2", "ranks=4", "ranks=2,loss=global"]


@pytest.mark.parametrize("how", SAME_WAYS)
@pytest.mark.parametrize("loss", ["ntxent", "triplet", "mnrl"])
def test_ways_that_are_the_same(loss, how):
    if loss not in cocos.losses.names() and loss != "mnrl":
        pytest.skip("not on the shelf")
    found = verdict(loss, f"{loss}@{how}")
    assert found["verdict"] == "the same" and found["same"] and found["gap"] < 1e-12


def test_a_coupled_loss_is_not_the_sum_of_its_chunks():
    assert not verdict("ce_softmax", "ce_softmax@chunks=32")["same"]


@pytest.mark.parametrize("spelling", ["cosent", "angle", "margin_mse", "kl_distill", "mnrl@filter=guide"])
def test_losses_that_read_grades_or_a_teacher(spelling):
    join = "," if "@" in spelling else "@"
    assert verdict(spelling, spelling)["same"]
    with pytest.raises(InputError, match="chunks cuts the batch, and its loss reads (grades|teacher) of the whole"):
        verdict(spelling, f"{spelling}{join}chunks=8")


def test_a_teacher_and_grades_come_from_the_file():
    rows = synthetic(40, 0, 0, CPU)
    with pytest.raises(InputError, match="cosent: it reads grades beside the embeddings, which are missing here"):
        verdict("cosent", "cosent", cocos.Embeddings(rows.query, rows.candidate))
    grades = torch.arange(40) % 3
    given = cocos.Embeddings(rows.query, rows.candidate, grades=grades)
    data = measures.same_gradient("cosent", "cosent@scale=10", given, batch_size=12, batches=1, seed=4)
    drawn_ = drawn(given, 12, False, 4)
    loss = cocos.losses.load("cosent")
    scores = (drawn_.query * drawn_.candidate).sum(dim=1)
    low = drawn_.annotations.grades[None, :] < drawn_.annotations.grades[:, None]
    pairs = cocos.Pairs(scores.expand(12, 12), torch.eye(12, dtype=torch.bool), low)
    assert data.attrs["value_a"] == pytest.approx(float(loss(pairs).mean()), rel=1e-9)
    teacher = torch.rand(40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given = cocos.Embeddings(rows.query, rows.candidate, teacher=teacher)
    data = measures.same_gradient("margin_mse", "margin_mse", given, batch_size=12, batches=1, seed=4)
    drawn_ = drawn(given, 12, False, 4)
    place = [int((rows.query == each).all(dim=1).nonzero()) for each in drawn_.query]
    pairs = cocos.Pairs(
        drawn_.query @ drawn_.candidate.T, torch.eye(12, dtype=torch.bool), teacher=teacher[place][:, place]
    )
    expected = float(cocos.losses.load("margin_mse")(pairs).mean())
    assert data.attrs["same"] and data.attrs["value_a"] == pytest.approx(expected, rel=1e-9)
    assert not verdict("margin_mse", "kl_distill", given)["same"]


def test_processes_that_gather_without_gradient():
    found = verdict("ntxent", "ntxent@ranks=2,gather=detached")
    assert "mini-batches of 32 rows" in found["verdict"]
    assert found["found"] == "detached"
    found = verdict("ntxent", "ntxent@ranks=2,gather=detached,loss=global")
    assert found["verdict"].startswith("the same up to a factor of 0.50 (world size 2?)")
    assert found["ratio"] == pytest.approx(0.5, abs=1e-9)
    assert verdict("ntxent", "ntxent@ranks=4,gather=detached,loss=global")["ratio"] == pytest.approx(0.25, abs=1e-9)


@pytest.mark.parametrize("how", ["accumulate=4", "ranks=4,gather=none"])
def test_mini_batches_see_no_negatives_of_each_other(how):
    data = measures.same_gradient("ntxent", f"ntxent@{how}")
    said = data.attrs["verdict"]
    assert said.startswith("B has no pairs across mini-batches of 16 rows, ")
    assert f"cosine {data.attrs['cosine']:.2f}" in said
    rows = synthetic(64, 0, 0, CPU)
    found = gradients("ntxent", way("ntxent"), rows).pairs
    block = torch.arange(64).repeat(2) // 16
    part = float(found[block[:, None] != block].abs().sum() / found.abs().sum())
    assert f"{100 * part:.0f} % of A's weights" in said


def test_dtypes_have_a_tolerance_of_their_own():
    half = verdict("ntxent", "ntxent@dtype=bfloat16")
    assert half["same"] and half["tolerance"] == 5e-2 and 1e-4 < half["gap"] < 5e-2 and half["dtype"] == "bfloat16"
    single = verdict("ntxent", "ntxent@dtype=float32")
    assert single["same"] and single["tolerance"] == 1e-4 and 1e-9 < single["gap"] < 1e-4
    assert not verdict("ntxent", "ntxent@dtype=bfloat16", tolerance=1e-4)["same"]
    sharp = verdict("ntxent@temperature=0.005", "ntxent@temperature=0.005,dtype=bfloat16")
    assert not sharp["same"] and sharp["found"] == "rounding"


# A training step of two processes as a user has it, for each way of gathering; the first process saves its gradients.
TWO_PROCESSES = """
from torch.nn.functional import cross_entropy, normalize

def scores(query, candidate):
    return 10 * normalize(query, dim=1) @ normalize(candidate, dim=1).T

def gathered(rows, with_gradient):
    if with_gradient:
        return torch.cat(dist.nn.all_gather(rows.contiguous()))
    parts = [torch.zeros_like(rows) for _ in range(2)]
    dist.all_gather(parts, rows.detach().contiguous())
    parts[rank] = rows
    return torch.cat(parts)

torch.manual_seed(0)
sides, tower = torch.randn(2, 16, 6, dtype=torch.float64), torch.nn.Linear(6, 5).double()
rows, found = slice(8 * rank, 8 * rank + 8), {}
for with_gradient in (True, False):
    for whole in (True, False):
        tower.zero_grad()
        model = torch.nn.parallel.DistributedDataParallel(tower)
        query, candidate = model(torch.cat([side[rows] for side in sides])).chunk(2)
        asked = gathered(candidate, with_gradient)
        target = torch.arange(16) if whole else torch.arange(16)[rows]
        cross_entropy(scores(gathered(query, with_gradient) if whole else query, asked), target).backward()
        found[with_gradient, whole] = tower.weight.grad.clone()
if rank == 0:
    torch.save([sides, found], "found.pt")
"""


def test_processes_have_the_gradient_of_distributed_data_parallel(fresh, tmp_path):
    done = children.two(fresh, "import torch, torch.distributed.nn", TWO_PROCESSES, tmp_path)
    assert done.returncode == 0, done.stderr
    sides, found = torch.load(tmp_path / "found.pt")
    for (with_gradient, whole), gradient in found.items():
        torch.manual_seed(0)
        torch.randn(2, 16, 6, dtype=torch.float64)
        tower = torch.nn.Linear(6, 5).double()
        how = f"ranks=2,gather={'grad' if with_gradient else 'detached'},loss={'global' if whole else 'local'}"
        way(f"ntxent@{how}")(tower(sides[0]), tower(sides[1]), None).backward()
        torch.testing.assert_close(tower.weight.grad, gradient, rtol=1e-9, atol=1e-12, msg=how)


def test_rows_as_given_keep_their_order():
    rows = synthetic(5, 2, 0, CPU)
    back = rows.like(rows.matrix)
    assert torch.equal(back.query, rows.query) and torch.equal(back.negatives, rows.negatives)
    assert isinstance(back, PairRows) and back.hard == 2
