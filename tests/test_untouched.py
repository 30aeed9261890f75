"""A training is the same with the tap and without, whatever it meets: autocast, accumulation, errors, compilers."""

import json

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.testing import assert_close

import children
from cocos.monitor import tap
from test_tap import ROWS, WIDTH, Clip, SigLip, SimClr, TripletHardest, embeddings, gradient, tapped


@pytest.mark.parametrize("module", [Clip, SigLip, SimClr, TripletHardest])
def test_a_training_is_the_same_bit_by_bit(module):
    def train(tapping):
        torch.manual_seed(0)
        towers, loss = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)]), module()
        parameters = [*towers.parameters(), *loss.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        found, reasons = [], []
        handle = (
            tap.Tap(loss, lambda: True, lambda *each: found.append(each), failed=reasons.append) if tapping else None
        )
        for step in range(100):
            rows = embeddings(seed=step)
            optimizer.zero_grad()
            loss(*(tower(each) for tower, each in zip(towers, rows, strict=True))).backward()
            optimizer.step()
        if handle:
            handle.remove()
            assert len(found) == 100 and not reasons
        return parameters

    for with_tap, without in zip(train(True), train(False), strict=True):
        assert torch.equal(with_tap, without)


def watched(module, wanted=lambda: True):
    found, reasons = [], []
    return found, reasons, tap.Tap(module, wanted, lambda *each: found.append(each), failed=reasons.append)


def test_under_autocast_with_a_scaled_loss():
    module, (a, b) = Clip("transposed"), embeddings()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    found, reasons, handle = watched(module)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module(a, b)
    scaler.scale(loss).backward()
    handle.remove()
    ((_, seen),) = found
    first = seen.by_width[0][0]
    closed = gradient(
        lambda s: F.cross_entropy(module.logit_scale.exp() * s, torch.arange(ROWS)) / 2, first.scores.float()
    )
    assert not reasons and first.scores.dtype == torch.bfloat16 and float(first.factor) == 2.0**12
    assert_close(first.weights, closed, rtol=0.1, atol=2e-3)  # gradients in bfloat16 have 8 bits


def test_accumulated_calls_are_records_of_their_own():
    module, tokens = Clip(), iter("abc")
    found, reasons, handle = watched(module, lambda: next(tokens))
    batches = [embeddings(seed=seed) for seed in range(3)]
    (module(*batches[0]) / 4).backward()
    (module(*batches[1]) / 4 + module(*batches[2]) / 4).backward()
    handle.remove()
    assert found[0][0] == "a" and not reasons
    for batch, (_, seen) in zip(batches, sorted(found, key=lambda each: each[0]), strict=True):
        for each, alone in zip(seen.by_width[0], tapped(module, *batch).by_width[0], strict=True):
            assert_close(each.weights, alone.weights)


def test_nothing_is_read_without_a_training():
    asked = []
    module, (a, b) = Clip(), embeddings()
    found, reasons, handle = watched(module, lambda: asked.append(True) or True)
    with torch.no_grad():
        module(a, b)
    module.eval()
    module(a, b).backward()
    assert not asked and not found
    module.train()
    module(a, b)  # without a backward pass
    assert len(asked) == 1 and not found and not reasons
    handle.remove()
    module(a, b).backward()
    assert not found and not module._forward_hooks and not module._forward_pre_hooks


def test_a_loss_that_is_changed_in_place():
    module, (a, b) = Clip(), embeddings()
    found, reasons, handle = watched(module)
    loss = module(a, b)
    loss /= 4
    loss.backward()
    handle.remove()
    ((_, seen),) = found
    assert_close(seen.by_width[0][0].weights, tapped(module, a, b).by_width[0][0].weights)
    assert not reasons


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_loss_is_left_alone(reentrant):
    module, (a, b), asked = Clip(), embeddings(), []
    found, reasons, handle = watched(module, lambda: asked.append(True) or True)
    torch.utils.checkpoint.checkpoint(module, a, b, use_reentrant=reentrant).backward()
    handle.remove()
    assert not found and len(asked) == (not reentrant)
    assert set(reasons) <= {tap.UNCALLED if reentrant else tap.RECOMPUTED}
    plain = [each.detach().clone().requires_grad_() for each in (a, b)]
    module(*plain).backward()
    assert torch.equal(a.grad, plain[0].grad)


def test_two_taps_of_one_module():
    module, (a, b) = Clip(), embeddings()
    taps = [watched(module) for _ in range(2)]
    module(a, b).backward()
    for _, _, handle in taps:
        handle.remove()
    (first, _, _), (second, _, _) = taps
    assert len(first) == len(second) == 1 and not modes()
    assert torch.equal(first[0][1].by_width[0][0].weights, second[0][1].by_width[0][0].weights)


def test_a_second_backward_pass_is_not_read_again():
    module, (a, b) = Clip(), embeddings()
    found, reasons, handle = watched(module)
    loss = module(a, b)
    loss.backward(retain_graph=True)
    loss.backward()
    handle.remove()
    assert len(found) == 1 and not reasons


def test_what_else_reads_the_scores_is_left_out():
    class WithScores(nn.Module):
        def forward(self, a, b):
            scores = a @ b.T
            return F.cross_entropy(scores, torch.arange(ROWS)), scores

    module, (a, b) = WithScores(), embeddings()
    found, reasons, handle = watched(module)
    loss, scores = module(a, b)
    scores.square().mean().backward(retain_graph=True)  # before the loss, and by itself
    loss.backward()
    handle.remove()
    ((_, seen),) = found
    each = seen.by_width[0][0]
    assert not reasons
    assert_close(each.weights, gradient(lambda s: F.cross_entropy(s, torch.arange(ROWS)), each.scores))


def modes():
    return torch.overrides._get_current_function_mode_stack()


def test_a_call_that_is_not_wanted_runs_without_a_mode():
    class Looks(nn.Module):
        def forward(self, a, b):
            stacks.append(len(modes()))
            return (a * b).sum()

    stacks, answers = [], iter([False, True, None])
    found, reasons, handle = watched(Looks(), lambda: next(answers))
    for _ in range(3):
        handle._module(*embeddings()).backward()
    assert stacks == [0, 1, 0] and not modes()
    assert not found and "no matrix of scores" in reasons[0] and len(reasons) == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_loss_that_fails_leaves_no_mode(error):
    class Fails(nn.Module):
        def forward(self, a, b):
            if b is None:
                raise error("own")
            return F.cross_entropy(a @ b.T, torch.arange(len(a)))

    module, (a, b) = Fails(), embeddings()
    found, reasons, handle = watched(module)
    with pytest.raises(error, match="own"):
        module(a, None)
    module(a, b).backward()
    handle.remove()
    assert not modes() and len(found) == 1 and not reasons


@pytest.mark.parametrize("place", ["wanted", "deliver", "failed"])
def test_errors_of_the_tap_stay_in_it(place):
    def breaks(*_):
        raise RuntimeError("broken")

    reasons, module, (a, b) = [], Clip(), embeddings()
    calls = {"wanted": lambda: True, "deliver": lambda *_: None, "failed": reasons.append} | {place: breaks}
    calls |= {"deliver": breaks} if place == "failed" else {}
    handle = tap.Tap(module, calls["wanted"], calls["deliver"], failed=calls["failed"])
    module(a, b).backward()
    handle.remove()
    plain = [each.detach().clone().requires_grad_() for each in (a, b)]
    module(*plain).backward()
    assert torch.equal(a.grad, plain[0].grad) and not modes()
    assert reasons == ([] if place == "failed" else ["RuntimeError: broken"])


def test_a_compiled_loss_says_so():
    module, (a, b) = Clip(), embeddings()
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    found, reasons, handle = watched(compiled)
    compiled(a, b).backward()
    handle.remove()
    assert not found and reasons == [tap.COMPILED]
    found, reasons, handle = watched(module)
    torch.compile(lambda *rows: 2 * module(*rows), backend="eager", fullgraph=True)(a, b).backward()
    handle.remove()
    assert not found and reasons == [tap.UNCALLED]


def test_rows_are_no_scores():
    reasons, rows = [], [*embeddings(), embeddings(seed=1)[0]]
    module = nn.TripletMarginLoss()
    handle = tap.Tap(module, lambda: True, pytest.fail, failed=reasons.append)
    module(*rows).backward()
    handle.remove()
    assert reasons == [tap.UNSEEN]


def test_products_between_dimensions_compare_no_rows():
    class Correlations(nn.Module):
        def forward(self, a, b):
            return (a.T @ b / len(a) - torch.eye(WIDTH)).square().sum()

    reasons = []
    handle = tap.Tap(Correlations(), lambda: True, pytest.fail, failed=reasons.append)
    handle._module(*embeddings()).backward()
    handle.remove()
    assert reasons == [tap.OVER_BATCH]


IMPORTS = """
import json, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed.nn
import torch.nn.functional as F
from cocos.monitor import tap
"""
PROCESS = """

class Gathered(torch.nn.Module):
    def forward(self, a, b):
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        every_a, every_b = (torch.cat(torch.distributed.nn.all_gather(each)) for each in (a, b))
        target = torch.arange(len(a)) + rank * len(a)
        return (F.cross_entropy(10 * a @ every_b.T, target) + F.cross_entropy(10 * b @ every_a.T, target)) / 2


generator, found, reasons = torch.Generator().manual_seed(0), [], []
rows = [torch.randn(8, 5, generator=generator).chunk(2)[rank].requires_grad_() for _ in range(2)]
module = Gathered()
tap.Tap(module, lambda: True, lambda token, seen: found.append(seen), failed=reasons.append)
module(*rows).backward()
for each in found[0].by_width[0]:
    push, at = each.weights.clamp(min=0), each.positive.int().argmax(dim=1).tolist()
    own = push[:, each.local].sum()
    with open(str(rank), "a") as file:
        print(json.dumps([each.direction, own.item(), (push.sum() - own).item(), at, reasons]), file=file)
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of PyTorch knows no processes")
def test_the_push_of_two_processes_is_that_of_one(fresh, tmp_path):
    """Of each direction: push on a process's own candidates and on others', and its positives."""
    module, generator = Clip(), torch.Generator().manual_seed(0)
    module.logit_scale = nn.Parameter(torch.tensor(10.0).log())
    rows = [torch.randn(8, 5, generator=generator).requires_grad_() for _ in range(2)]
    (alone,) = tapped(module, *rows).by_width
    done = children.two(fresh, IMPORTS, PROCESS, tmp_path)
    assert done.returncode == 0, done.stderr
    both = [[json.loads(line) for line in (tmp_path / rank).read_text().splitlines()] for rank in "01"]
    for k, name in enumerate(("q2c", "c2q")):
        assert [each[k][0] for each in both] == [name, name]
        assert [each[k][3] for each in both] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert all(each[k][1] > 0 and each[k][2] > 0 and not each[k][4] for each in both)
        total = sum(each[k][1] + each[k][2] for each in both) / 2  # each process takes the mean of half of the rows
        assert total == pytest.approx(alone[k].weights.clamp(min=0).sum().item(), rel=1e-5)
