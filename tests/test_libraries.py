"""Losses of other libraries by name: their own code runs, with the unit, the norms and the settings that it needs."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, losses, measures, scores, weights
from cocos.commands import app

# A package of the same interface, since none of the libraries is installed where the tests run.
OPEN_CLIP = """
import torch
import torch.nn.functional as F
from torch import nn


class ClipLoss(nn.Module):
    def __init__(self, local_loss=False, cache_labels=False, rank=0, world_size=1):
        super().__init__()
        self.cache_labels, self.rank, self.world_size = cache_labels, rank, world_size
        self.labels = {}

    def forward(self, image_features, text_features, logit_scale, logit_bias=None, output_dict=False):
        per_image = logit_scale * image_features @ text_features.T
        per_text = logit_scale * text_features @ image_features.T
        if logit_bias is not None:
            per_image += logit_bias
            per_text += logit_bias
        if not self.labels or not self.cache_labels:
            self.labels["cpu"] = torch.arange(len(per_image))
        own = self.labels["cpu"]
        return (F.cross_entropy(per_image, own) + F.cross_entropy(per_text, own)) / 2


class SigLipLoss(nn.Module):
    def __init__(self, cache_labels=False, rank=0, world_size=1, dist_impl=None):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def forward(self, image_features, text_features, logit_scale, logit_bias, output_dict=False):
        logits = logit_scale * image_features @ text_features.T
        logits += logit_bias
        labels = 2 * torch.eye(len(logits), dtype=logits.dtype) - 1
        return -F.logsigmoid(labels * logits).sum() / len(logits)


class CoCaLoss(ClipLoss):
    pass
"""


def write(folder, name, **files):
    """A package with these modules."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    for part, text in files.items():
        (folder / name / f"{part}.py").write_text(text)


def forget(monkeypatch, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def open_clip(monkeypatch, tmp_path):
    forget(monkeypatch, "open_clip")
    write(tmp_path, "open_clip", loss=OPEN_CLIP)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("open_clip", "open_clip.loss"):
        sys.modules.pop(name, None)


def sides(rows=24, *, dtype=torch.float64, unit=False):
    """Two sides of norms far from 1, whose scores differ by direction."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(rows, 8, generator=generator, dtype=torch.float64)
    candidate = query + torch.randn(rows, 8, generator=generator, dtype=torch.float64)
    lengths = 2 + 9 * torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    query, candidate = query * lengths, candidate * lengths.flip(0)
    if unit:
        query, candidate = (each / each.norm(dim=1, keepdim=True) for each in (query, candidate))
    return Embeddings(query.to(dtype), candidate.to(dtype))


def pairs_of(embeddings):
    return scores.pairs(embeddings, metric="cosine")


def both_ways(loss, pairs):
    """Half of the gradient of a loss of rows, and half of that of columns, by autograd on the scores alone."""
    leaf = pairs.scores.clone().requires_grad_()
    own = torch.eye(len(leaf), dtype=torch.bool)
    total = (loss(cocos.Pairs(leaf, own)).sum() + loss(cocos.Pairs(leaf.T, own)).sum()) / 2
    return torch.autograd.grad(total, leaf)[0]


@pytest.mark.parametrize(("dtype", "room"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("given", [{"logit_scale": 20}, {"temperature": "0.05"}, {"scale": 20, "logit_bias": 3}])
def test_clip_weighs_as_ntxent_of_both_directions(open_clip, dtype, room, given):
    pairs = pairs_of(sides(dtype=dtype))
    loss = losses.load("open_clip:ClipLoss", given)
    assert losses.name_of(loss) == "open_clip:ClipLoss" and losses.parameters(loss)["logit_scale"] == 20
    closed = both_ways(losses.load("ntxent", {"temperature": 0.05}), pairs)
    assert_close(loss.weight(pairs), closed, rtol=0, atol=room * 20)
    bound = loss.bind(pairs)
    assert (bound.metric, bound.weights, bound.gradient, bound.share) == ("cosine", "score", "autograd", "probability")
    assert_close(bound.unit(pairs), torch.full_like(bound.unit(pairs), 20), rtol=1e-6, atol=0)
    assert bound.unit_from == "NTXent(temperature=0.05), half of each direction"


def test_siglip_weighs_as_that_of_the_shelf(open_clip):
    pairs = pairs_of(sides())
    loss = losses.load("open_clip:siglip", {"scale": 12, "bias": -9}).bind(pairs)
    shelf = losses.load("siglip", {"scale": 12, "bias": -9})
    assert losses.parameters(loss) == {"logit_scale": 12, "logit_bias": -9}
    assert_close(loss.weight(pairs), shelf.weight(pairs), rtol=0, atol=1e-12)
    assert_close(loss.unit(pairs), shelf.unit(pairs)) and loss.unit_from == repr(shelf)
    assert_close(loss(pairs).sum(), shelf(pairs).sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["open_clip:ClipLoss", "open_clip:SigLipLoss"])
def test_the_weights_are_the_derivative_of_the_library_in_its_scores(open_clip, name):
    pairs, loss = pairs_of(sides(6)), losses.load(name)
    assert_close(weights.autograd(loss, pairs), loss.weight(pairs), rtol=0, atol=1e-12)
    assert_close(weights.finite_difference(loss, pairs), loss.weight(pairs), rtol=0, atol=1e-7)
    assert not loss(pairs).requires_grad


@pytest.mark.parametrize("name", ["open_clip:ClipLoss", "open_clip:SigLipLoss"])
def test_raw_rows_count_as_unit_rows_and_a_caution_says_so(open_clip, name):
    raw, unit = (measures.count(sides(unit=each), name, batch_size=12) for each in (False, True))
    assert np.array_equal(raw["contributing"], unit["contributing"])
    assert float(raw["effective"].mean()) == pytest.approx(float(unit["effective"].mean()), rel=1e-9)
    (said,) = (line for line in raw.attrs["notes"].splitlines() if line.startswith("CAUTION: "))
    low, high = (f(torch.cat(sides().norms)).item() for f in (torch.min, torch.max))
    assert f"norms {low:.3g} to {high:.3g}; a model of open_clip divides them by their norms" in said
    assert "CAUTION" not in unit.attrs["notes"]


def test_the_caution_stands_before_the_table(open_clip, tmp_path):
    file = tmp_path / "raw.npz"
    np.savez(file, query=sides().query.numpy(), candidate=sides().candidate.numpy())
    arguments = ["count", str(file), "--loss", "open_clip:ClipLoss", "-p", "logit_scale=20", "--batch-size", "12"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0 and result.stdout.startswith("CAUTION: the embeddings have norms")
    assert "divides" in result.stdout and result.stdout.index("CAUTION") < result.stdout.index("q2c")
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert document["health"]["collapsed"] is False and document["loss"]["parameters"] == {"logit_scale": 20.0}


def test_a_loss_of_ones_own_that_reads_raw_products_is_cautioned():
    def clip(image_features, text_features):
        logits = image_features @ text_features.T
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)))

    said = measures.count(sides(), clip, batch_size=12).attrs["notes"]
    assert "CAUTION: the embeddings have norms" in said and "reads their inner products as they are" in said
    assert "CAUTION" not in measures.count(sides(unit=True), clip, batch_size=12).attrs["notes"]


def test_the_object_is_recognised_by_its_class_and_is_not_changed(open_clip):
    from open_clip.loss import ClipLoss

    module = ClipLoss(cache_labels=True)
    named = measures.count(sides(), "open_clip:ClipLoss", batch_size=12)
    found = measures.count(sides(), module, batch_size=12)
    assert found.equals(named) and found.attrs["loss"] == "open_clip:ClipLoss" and module.labels == {}

    class Own(ClipLoss):
        """A class derived from it is another loss."""

    with pytest.raises(InputError, match="'logit_scale' is not understood"):
        losses.of(Own())


def test_a_temperature_that_is_not_known_is_said_and_a_recorded_one_is_taken(open_clip, tmp_path):
    said = "\n".join(losses.load("open_clip:SigLipLoss", {"bias": -9}).bind(pairs_of(sides())).notes)
    assert "logit_scale 10: open_clip begins a training there" in said and "logit_bias" not in said
    file = tmp_path / "sides.npz"
    np.savez(file, query=sides().query.numpy(), candidate=sides().candidate.numpy())
    checkpoint = cocos.open(file)
    checkpoint.recorded.update({"ntxent": {"temperature": 0.025}, "siglip": {"scale": 100.0, "bias": -12.0}})
    clip, origin = checkpoint.loss("open_clip:ClipLoss")
    assert losses.parameters(clip) == {"logit_scale": 40.0} and "logit_scale 40.0 (recorded in" in origin
    assert losses.parameters(checkpoint.loss("open_clip:SigLipLoss")[0]) == {"logit_scale": 100.0, "logit_bias": -12.0}
    assert losses.parameters(checkpoint.loss("open_clip:ClipLoss", {"temperature": 0.1})[0]) == {"logit_scale": 10.0}
    assert not any("begins a training" in note for note in clip.bind(pairs_of(sides())).notes)


def test_verify_compares_the_library_with_its_twin(open_clip):
    data = measures.verify("open_clip:ClipLoss")
    assert data.attrs["faults"] == "" and "equal to ntxent, half of each direction" in data.attrs["notes"]


def test_another_loss_of_that_name_does_not_get_the_unit(open_clip, tmp_path):
    (tmp_path / "open_clip" / "loss.py").write_text(OPEN_CLIP.replace("/ 2", "/ 3"))
    loss = losses.load("open_clip:ClipLoss").bind(pairs_of(sides()))
    assert loss.unit_from == "push" and "its weights are not those of NTXent" in "\n".join(loss.notes)


def test_what_the_scores_do_not_carry_is_said(open_clip, tmp_path):
    more = OPEN_CLIP.replace("/ 2", "/ 2 + image_features[:, 0].mean()")
    (tmp_path / "open_clip" / "loss.py").write_text(more)
    notes = losses.load("open_clip:ClipLoss").bind(pairs_of(sides())).notes
    assert any("reads its embeddings in other ways too" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("open_clip:ClipLos", {}, "did you mean 'ClipLoss'?"),
        ("open_clip:CoCaLoss", {}, "name open_clip:ClipLoss for its contrastive part"),
        ("open_clip:ClipLoss", {"logit_scal": 1}, "unknown parameter of open_clip:ClipLoss 'logit_scal'"),
        ("open_clip:ClipLoss", {"logit_scale": "much"}, "logit_scale 'much', expected a finite number"),
        ("open_clip:ClipLoss", {"temperature": 0}, "temperature 0, expected a number above 0"),
        ("open_clip:ClipLoss", {"temperature": 0.1, "scale": 10}, "logit_scale of open_clip:ClipLoss is given twice"),
        ("open_clip:ClipLoss", {"logit_scale": -3}, "logit_scale -3, expected a number above 0"),
        ("open_clip:ClipLoss", {"world_size": 2}, "world_size 2: it gathers rows of other processes"),
        ("open_clip:ClipLoss", {"unit": -1}, "unit -1, expected a number above 0"),
        ("open_clip:ClipLoss", {"metric": "dot"}, "unknown parameter of open_clip:ClipLoss 'metric'"),
    ],
)
def test_what_cannot_be_used_gets_one_sentence(open_clip, name, given, sentence):
    with pytest.raises(InputError) as error:
        losses.load(name, given)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_rows_that_do_not_match_get_one_sentence(open_clip):
    labelled = Embeddings.labelled(sides().query, [0, 1] * 12)
    with pytest.raises(InputError, match="query i must match candidate i"):
        measures.count(labelled, "open_clip:ClipLoss")


def test_without_the_library_a_sentence_says_how_to_get_it(monkeypatch):
    forget(monkeypatch, "open_clip")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match="needs open_clip; pip install open_clip_torch"):
        losses.load("open_clip:ClipLoss")


def test_a_library_that_cannot_be_imported_gets_one_sentence(open_clip, tmp_path):
    (tmp_path / "open_clip" / "loss.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    with pytest.raises(InputError, match="open_clip could not be imported: RuntimeError: operator torchvision::nms"):
        losses.load("open_clip:ClipLoss")


@pytest.mark.parametrize("name", ["open_clip:ClipLoss", "open_clip:SigLipLoss"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parity_with_the_installed_library(name, dtype):
    """The gap is printed with -s; skipped where the library is missing, as on most machines."""
    pytest.importorskip(f"{name.partition(':')[0]}.loss", exc_type=Exception)
    parity(name, {"logit_scale": 20.0}, dtype)


def parity(name, given, dtype):
    pairs = pairs_of(sides(64, dtype=dtype))
    loss = losses.load(name, given).bind(pairs)
    ours, theirs = loss.twin.weight(pairs), loss.weight(pairs)
    gap = float((ours - theirs).abs().max() / theirs.abs().max())
    print(f"{name} {given} {dtype}: {gap:.1e} of the largest weight, {theirs.abs().max():.4g}")
    assert math.isfinite(gap) and gap < 20 * torch.finfo(dtype).eps
