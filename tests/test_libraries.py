"""Losses of other libraries by name: their own code runs, with the unit, the norms and the settings that it needs."""

import json
import math
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, losses, measures
from cocos.cli import app
from cocos.counting import findings, weights
from cocos.embeddings import scores
from cocos.embeddings.sources import GTE_DIRECTIONS
from cocos.measures.shared.prepared import prepare

WAYS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")

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

SIMILARITIES = """
import torch.nn.functional as F


def cos_sim(a, b):
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def dot_score(a, b):
    return a @ b.T


def pairwise_dot_score(a, b):
    return (a * b).sum(dim=1)


def pairwise_cos_sim(a, b):
    return F.cosine_similarity(a, b)
"""
SENTENCES = """
import torch
import torch.nn.functional as F
from torch import nn

from sentence_transformers.util import cos_sim, pairwise_cos_sim, pairwise_dot_score

WAYS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")


class MultipleNegativesRankingLoss(nn.Module):
    def __init__(self, model, scale=20.0, similarity_fct=cos_sim, gather_across_devices=False,
                 directions=WAYS[:1], partition_mode="joint", hardness_mode=None, hardness_strength=0.0):
        super().__init__()
        self.model, self.scale, self.similarity_fct = model, scale, similarity_fct
        self.gather_across_devices = gather_across_devices
        self.directions, self.partition_mode = directions, partition_mode
        self.hardness_mode, self.hardness_strength = hardness_mode, hardness_strength

    def forward(self, features, labels):
        return self.of_rows([self.model(each)["sentence_embedding"] for each in features])

    def of_rows(self, columns):
        query, first, every = columns[0], columns[1], torch.cat(columns[1:])
        own = torch.eye(len(query), dtype=torch.bool)
        mine = own.repeat(1, len(columns) - 1)
        scores = {WAYS[0]: self.similarity_fct(query, every)}
        penalty = self.hardness_strength * scores[WAYS[0]].detach()
        if WAYS[1] in self.directions:
            scores[WAYS[1]] = self.similarity_fct(query, query).masked_fill(own, -torch.inf)
        if WAYS[2] in self.directions:
            scores[WAYS[2]] = self.similarity_fct(query, first).T
        if WAYS[3] in self.directions:
            scores[WAYS[3]] = self.similarity_fct(every, first).T.masked_fill(mine, -torch.inf)
        scores = {way: self.scale * each for way, each in scores.items()}
        if self.hardness_mode == "hard_negatives":
            mine[:, :len(query)] = False
            scores[WAYS[0]] = scores[WAYS[0]] + torch.where(mine, penalty, 0)
        positive = scores[WAYS[0]].diagonal()
        if self.partition_mode == "joint":
            return (torch.cat(list(scores.values()), dim=1).logsumexp(dim=1) - positive).mean()
        return (sum(each.logsumexp(dim=1) for each in scores.values()) / len(scores) - positive).mean()


class CachedMultipleNegativesRankingLoss(MultipleNegativesRankingLoss):
    def __init__(self, model, scale=20.0, mini_batch_size=4):
        super().__init__(model, scale)
        self.mini_batch_size = mini_batch_size

    def calculate_loss(self, parts, with_backward=False):
        assert self.mini_batch_size >= len(parts[0][0])
        return self.of_rows([torch.cat(each) for each in parts])

    def forward(self, features, labels):
        raise NotImplementedError("its gradient is cached")


class GISTEmbedLoss(nn.Module):
    def __init__(self, model, guide, temperature=0.01, margin_strategy="absolute", margin=0.0,
                 contrast_anchors=True, contrast_positives=True, gather_across_devices=False):
        super().__init__()
        self.model, self.guide, self.temperature, self.margin = model, guide, temperature, margin
        self.contrast_anchors, self.contrast_positives = contrast_anchors, contrast_positives
        self.margin_strategy, self.gather_across_devices = margin_strategy, gather_across_devices
        assert model.tokenizer.get_vocab() == guide.tokenizer.get_vocab()

    def forward(self, features, labels):
        student = [self.model(each)["sentence_embedding"] for each in features]
        guide = [self.guide(each)["sentence_embedding"] for each in features]
        bar = F.cosine_similarity(guide[0], guide[1])[:, None] - self.margin
        own = torch.eye(len(bar), dtype=torch.bool)

        def part(i, j):
            suspected = cos_sim(guide[i], guide[j]) > bar
            suspected = suspected & ~own if (i, j) == (0, 1) else suspected
            return cos_sim(student[i], student[j]).masked_fill(suspected, -torch.inf)

        scores = [part(0, 1)]
        scores += [part(0, 0)] if self.contrast_anchors else []
        scores += [part(1, 1)] if self.contrast_positives else []
        scores += [part(0, 2)] if len(student) > 2 else []
        return F.cross_entropy(torch.cat(scores, dim=1) / self.temperature, torch.arange(len(bar)))


class MarginMSELoss(nn.Module):
    def __init__(self, model, similarity_fct=pairwise_dot_score):
        super().__init__()
        self.model, self.similarity_fct = model, similarity_fct

    def scores(self, features):
        query, *documents = [self.model(each)["sentence_embedding"] for each in features]
        return torch.stack([self.similarity_fct(query, each) for each in documents], dim=1)

    def forward(self, features, labels):
        scores = self.scores(features)
        return F.mse_loss(scores[:, :1] - scores[:, 1:], labels[:, :1] - labels[:, 1:])


class DistillKLDivLoss(MarginMSELoss):
    def __init__(self, model, similarity_fct=pairwise_dot_score, temperature=1.0):
        super().__init__(model, similarity_fct)
        self.temperature = temperature

    def forward(self, features, labels):
        own, taught = (self.scores(features) / self.temperature).log_softmax(1), (labels / self.temperature).softmax(1)
        return F.kl_div(own, taught, reduction="batchmean") * self.temperature**2


class CoSENTLoss(MarginMSELoss):
    def __init__(self, model, scale=20.0, similarity_fct=pairwise_cos_sim):
        super().__init__(model, similarity_fct)
        self.scale = scale

    def forward(self, features, labels):
        scores = self.scale * self.scores(features)[:, 0]
        worse = scores[:, None] - scores[None, :]
        return torch.cat([worse[labels[:, None] < labels[None, :]], torch.zeros(1)]).logsumexp(dim=0)


class MultipleNegativesSymmetricRankingLoss(MultipleNegativesRankingLoss):
    def __init__(self, model, scale=20.0):
        super().__init__(model, scale, directions=(WAYS[0], WAYS[2]), partition_mode="per_direction")
"""
LIGHTLY = """
import torch
import torch.nn.functional as F
from torch import nn


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.5, memory_bank_size=0, gather_distributed=False):
        super().__init__()
        self.temperature, self.gather_distributed = temperature, gather_distributed
        self.memory_bank = nn.Module()
        self.memory_bank.size = memory_bank_size

    def forward(self, out0, out1):
        out0, out1, own = F.normalize(out0, dim=1), F.normalize(out1, dim=1), torch.eye(len(out0), dtype=torch.bool)
        parts = {(i, j): torch.einsum("nc,mc->nm", a, b) / self.temperature
                 for i, a in enumerate((out0, out1)) for j, b in enumerate((out0, out1))}
        here = torch.cat([parts[0, 1], parts[0, 0].masked_fill(own, -torch.inf)], dim=1)
        there = torch.cat([parts[1, 0], parts[1, 1].masked_fill(own, -torch.inf)], dim=1)
        return F.cross_entropy(torch.cat([here, there]), torch.arange(len(out0)).repeat(2))


class DCLLoss(nn.Module):
    def __init__(self, temperature=0.1, weight_fn=None, gather_distributed=False):
        super().__init__()
        self.temperature, self.weight_fn, self.gather_distributed = temperature, weight_fn, gather_distributed

    def forward(self, out0, out1):
        out0, out1 = F.normalize(out0, dim=1), F.normalize(out1, dim=1)
        return (self.view(out0, out1) + self.view(out1, out0)) / 2

    def view(self, one, other):
        own = torch.eye(len(one), dtype=torch.bool)
        same, across = one @ one.T / self.temperature, one @ other.T / self.temperature
        return (torch.cat([same.masked_fill(own, -torch.inf), across.masked_fill(own, -torch.inf)], dim=1).logsumexp(1)
                - across.diagonal()).mean()
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


@pytest.fixture
def lightly(monkeypatch, tmp_path):
    forget(monkeypatch, "lightly")
    write(tmp_path, "lightly", loss=LIGHTLY)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("lightly", "lightly.loss"):
        sys.modules.pop(name, None)


@pytest.fixture
def transformers(monkeypatch):
    module = types.ModuleType("transformers")
    module.PreTrainedTokenizerBase = type("PreTrainedTokenizerBase", (), {})
    monkeypatch.setitem(sys.modules, "transformers", module)


@pytest.fixture
def sentences(monkeypatch, tmp_path):
    forget(monkeypatch, "sentence_transformers")
    write(tmp_path, "sentence_transformers", util=SIMILARITIES, losses=SENTENCES)
    monkeypatch.syspath_prepend(tmp_path)
    others = [each for each in sys.meta_path if not type(each).__module__.startswith("sentence_transformers")]
    monkeypatch.setattr(sys, "meta_path", others)  # the finder of the library itself, where a test has imported it
    yield
    for name in ("", ".util", ".losses"):
        sys.modules.pop(f"sentence_transformers{name}", None)


def triples(rows=24, own=2, sharing=3):
    """Rows with two hard negatives each: one that `sharing` queries have, and one that is the positive of another."""
    given = sides(rows, unit=True)
    extra = torch.nn.functional.normalize(given.query[::sharing] + 0.3 * given.candidate[::sharing].flip(0), dim=1)
    number = torch.arange(rows)
    negatives = torch.stack([rows + number // sharing, (number + 5) % rows], dim=1)[:, :own]
    groups = number, torch.arange(rows + len(extra))
    return Embeddings(given.query, torch.cat([given.candidate, extra]), *groups, negatives=negatives)


def first_batch(loss, embeddings, batch_size=12):
    """A loss bound to the first batch, and its pairs."""
    run = prepare(embeddings, loss, batch_size=batch_size, batches=1)
    return run.loss, next(run.pairs(run.embeddings, run.plan.batches[0], whole=True))


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
    assert loss.name == "open_clip:ClipLoss" and loss.parameters["logit_scale"] == 20
    closed = both_ways(losses.load("ntxent", {"temperature": 0.05}), pairs)
    assert_close(loss.weight(pairs), closed, rtol=0, atol=room * 20)
    bound = loss.bind(pairs)
    assert (bound.metric, bound.gradient, bound.share) == (
        "cosine",
        "autograd",
        "probability",
    )
    assert_close(bound.unit(pairs), torch.full_like(bound.unit(pairs), 20), rtol=1e-6, atol=0)
    assert bound.unit_from == "NTXent(temperature=0.05), half of each direction"


def test_siglip_weighs_as_that_of_the_shelf(open_clip):
    pairs = pairs_of(sides())
    loss = losses.load("open_clip:siglip", {"scale": 12, "bias": -9}).bind(pairs)
    shelf = losses.load("siglip", {"scale": 12, "bias": -9})
    assert loss.parameters == {"logit_scale": 12, "logit_bias": -9}
    assert_close(loss.weight(pairs), shelf.weight(pairs), rtol=0, atol=1e-12)
    assert_close(loss.unit(pairs), shelf.unit(pairs)) and loss.unit_from == repr(shelf)
    assert_close(loss(pairs).sum(), shelf(pairs).sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["open_clip:ClipLoss", "open_clip:SigLipLoss"])
def test_the_weights_are_the_derivative_of_the_library_in_its_scores(open_clip, name):
    pairs, loss = pairs_of(sides(6)), losses.load(name)
    assert_close(weights.autograd(loss, pairs), loss.weight(pairs), rtol=0, atol=1e-12)
    assert_close(weights.finite_difference(loss, pairs), loss.weight(pairs), rtol=0, atol=1e-7)
    assert not loss(pairs).requires_grad


def kinds(data):
    return {finding.kind for finding in findings.stored(data.attrs)}


@pytest.mark.parametrize("name", ["open_clip:ClipLoss", "open_clip:SigLipLoss"])
def test_raw_rows_count_as_unit_rows_and_a_caution_says_so(open_clip, name):
    raw, unit = (measures.count(sides(unit=each), name, batch_size=12) for each in (False, True))
    assert np.array_equal(raw["contributing"], unit["contributing"])
    assert float(raw["effective"].mean()) == pytest.approx(float(unit["effective"].mean()), rel=1e-9)
    (finding,) = (each for each in findings.stored(raw.attrs) if each.kind == "divided norms")
    low, high = (f(torch.cat(sides().norms)).item() for f in (torch.min, torch.max))
    assert f"{low:.3g} to {high:.3g}" in finding.sentence and "open_clip" in finding.sentence
    assert "divided norms" not in kinds(unit)


def test_the_caution_stands_before_the_table(open_clip, tmp_path):
    file = tmp_path / "raw.npz"
    np.savez(file, query=sides().query.numpy(), candidate=sides().candidate.numpy())
    arguments = ["count", str(file), "--loss", "open_clip:ClipLoss", "-p", "logit_scale=20", "--batch-size", "12"]
    result = CliRunner().invoke(app, arguments)
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    (sentence,) = (each["sentence"] for each in document["findings"] if each["kind"] == "divided norms")
    assert result.exit_code == 0
    assert result.stdout.index(sentence[:30]) < result.stdout.index("q2c")
    assert document["health"]["collapsed"] is False and document["loss"]["parameters"] == {"logit_scale": 20.0}


def test_a_loss_of_ones_own_that_reads_raw_products_is_cautioned():
    def clip(image_features, text_features):
        logits = image_features @ text_features.T
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)))

    assert "raw norms" in kinds(measures.count(sides(), clip, batch_size=12))
    assert "raw norms" not in kinds(measures.count(sides(unit=True), clip, batch_size=12))


def test_a_class_named_by_its_module_is_run_as_it_is_and_pointed_to_its_adapter(open_clip):
    as_it_is = losses.load("open_clip.loss:ClipLoss", {"logit_scale": 20})
    stored = findings.stored(measures.count(sides(), as_it_is, batch_size=12).attrs)
    assert ["--loss open_clip:ClipLoss" in each.cure for each in stored if each.kind == "raw norms"] == [True]
    for name in ("open_clip.loss:CoCaLoss", "my.open_clip:ClipLoss", "losses.py:ClipLoss", "ntxent"):
        assert losses.adapted_name(name) is None


def test_the_object_is_recognised_by_its_class_and_is_not_changed(open_clip):
    from open_clip.loss import ClipLoss

    module = ClipLoss(cache_labels=True)
    named = measures.count(sides(), "open_clip:ClipLoss", batch_size=12)
    found = measures.count(sides(), module, batch_size=12)
    assert found.equals(named) and found.attrs["loss"] == "open_clip:ClipLoss" and module.labels == {}

    class Own(ClipLoss):
        """A class derived from it is another loss."""

    with pytest.raises(InputError, match="'logit_scale' is not understood"):
        losses.as_loss(Own())


def test_a_temperature_that_is_not_known_is_said_and_a_recorded_one_is_taken(open_clip, tmp_path):
    said = "\n".join(losses.load("open_clip:SigLipLoss", {"bias": -9}).bind(pairs_of(sides())).notes)
    assert "logit_scale 10: open_clip begins a training there" in said and "logit_bias" not in said
    file = tmp_path / "sides.npz"
    np.savez(file, query=sides().query.numpy(), candidate=sides().candidate.numpy())
    checkpoint = cocos.open(file)
    checkpoint.recorded.update({"ntxent": {"temperature": 0.025}, "siglip": {"scale": 100.0, "bias": -12.0}})
    clip, origin = checkpoint.loss("open_clip:ClipLoss")
    assert clip.parameters == {"logit_scale": 40.0} and "logit_scale 40.0 (recorded in" in origin
    assert (checkpoint.loss("open_clip:SigLipLoss")[0]).parameters == {"logit_scale": 100.0, "logit_bias": -12.0}
    assert (checkpoint.loss("open_clip:ClipLoss", {"temperature": 0.1})[0]).parameters == {"logit_scale": 10.0}
    assert not any("begins a training" in note for note in clip.bind(pairs_of(sides())).notes)


def test_verify_compares_the_library_with_its_twin(open_clip):
    data = measures.verify("open_clip:ClipLoss")
    assert data.attrs["faults"] == "" and "equal to ntxent, half of each direction" in data.attrs["notes"]


def test_another_loss_of_that_name_does_not_get_the_unit(open_clip, tmp_path):
    (tmp_path / "open_clip" / "loss.py").write_text(OPEN_CLIP.replace("/ 2", "/ 3"))
    loss = losses.load("open_clip:ClipLoss").bind(pairs_of(sides()))
    assert loss.unit_from == "unknown" and "its weights are not those of NTXent" in "\n".join(loss.notes)
    assert measures.count(sides(), losses.load("open_clip:ClipLoss")).attrs["gradient"] == "autograd"


def test_a_loss_that_is_one_of_the_shelf_is_counted_by_its_closed_form(open_clip):
    theirs = measures.count(sides(), losses.load("open_clip:ClipLoss"))
    assert (
        theirs.attrs["gradient"] == "exact"
        and "by the closed form of NTXent(temperature=0.07)" in theirs.attrs["notes"]
    )
    given = measures.count(sides(), losses.load("open_clip:ClipLoss", {"unit": 1 / 0.07}))
    assert given.attrs["gradient"] == "autograd"
    np.testing.assert_array_equal(theirs["contributing"], given["contributing"])


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


def test_without_the_library_a_sentence_says_how_to_get_it(monkeypatch):
    forget(monkeypatch, "open_clip")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match="needs open_clip; pip install open_clip_torch"):
        losses.load("open_clip:ClipLoss")


def slow_ranking(query, documents, scale, ways, own):
    """Summed loss by loops over the columns of a training set; `own` is the hardness of a query's hard negatives."""

    def score(a, b):
        return torch.nn.functional.cosine_similarity(a, b, dim=0)

    total = 0
    for i in range(len(query)):
        terms = [scale * score(query[i], column[j]) for column in documents for j in range(len(query))]
        positive = terms[i]
        others = []
        for j in range(len(query)):
            if "query_to_query" in ways and j != i:
                others.append(scale * score(query[i], query[j]))
            if "doc_to_query" in ways:
                others.append(scale * score(documents[0][i], query[j]))
            if "doc_to_doc" in ways and j != i:
                others += [scale * score(documents[0][i], column[j]) for column in documents]
        for k in range(1, len(documents)):
            terms[k * len(query) + i] = terms[k * len(query) + i] + own * (terms[k * len(query) + i] / scale).detach()
        total = total + torch.stack(terms + others).logsumexp(dim=0) - positive
    return total


@pytest.mark.parametrize("own", [0, 1, 2])
@pytest.mark.parametrize(
    ("given", "ways", "strength"),
    [
        ({}, (), 0),
        ({"scale": 5}, (), 0),
        ({"directions": "query_to_doc,query_to_query,doc_to_query,doc_to_doc"}, WAYS, 0),
        ({"hardness_mode": "hard_negatives", "hardness_strength": 5}, (), 5),
    ],
)
def test_hard_negatives_of_sentence_transformers_stand_in_columns(sentences, own, given, ways, strength):
    """The gradient of the rows by loops, and by the weights of the scores; own negatives in several columns add up."""
    rows = triples(own=own, sharing=1 if ways else 3) if own else sides()
    loss, pairs = first_batch(losses.load("st:MultipleNegativesRankingLoss", given), rows)
    part = pairs.embeddings
    query, candidate = (rows.clone().requires_grad_() for rows in (part.query, part.candidate))
    index = loss._columns(pairs).index
    documents = [candidate[each] for each in index.T]
    whole = torch.autograd.grad(
        slow_ranking(query, documents, loss.settings["scale"], ways, strength), [query, candidate]
    )
    moved = part.rows(torch.arange(len(query)), torch.arange(len(candidate)))
    moved.__dict__.update(query=query, candidate=candidate)
    weights_ = loss._weigh(pairs)
    by_scores = torch.autograd.grad((loss._scores(moved) * weights_).sum(), [query, candidate])
    excluded = (
        "doc_to_doc" in ways and own == 2
    )  # a hard negative that is the positive of another query, near a positive
    for one, other in zip(whole, by_scores, strict=True):
        assert excluded or torch.allclose(one, other, rtol=0, atol=1e-9 * float(one.abs().max()))
    assert loss.twin is not None and loss.unit_from.startswith("MNRL(scale=")
    assert_close(loss.twin_weight(pairs), loss.weight(pairs), rtol=0, atol=1e-9)
    hard = [] if pairs.source is None else (pairs.source[0, : len(candidate)] == 1).nonzero().flatten().tolist()
    assert sorted(index[0].tolist()) == sorted({0, *hard})


def test_counts_of_sentence_transformers_are_by_source_as_of_the_twin(sentences):
    ways = "query_to_doc,query_to_query,doc_to_query,doc_to_doc"
    named = losses.load("st:MultipleNegativesRankingLoss", {"directions": ways, "temperature": 0.1})
    twin = losses.load("mnrl", {"scale": 10, "directions": ",".join(GTE_DIRECTIONS)})
    ours, theirs = (measures.count(triples(own=1), each, batch_size=12) for each in (named, twin))
    of_batch = ["in-batch", "own hard", "others' hard", *GTE_DIRECTIONS[1:]]
    assert list(ours["source"].values) == list(theirs["source"].values) == of_batch
    assert float(ours["source_push"].min()) >= 0 and (ours["source_push"].sum(["batch", "query"]) > 0).all()
    assert named.parameters == {"directions": ways, "scale": 10.0}
    plain = losses.load("st:MultipleNegativesRankingLoss", {"scale": 10})
    here, there = (measures.count(sides(), each, batch_size=12) for each in (plain, losses.load("mnrl", {"scale": 10})))
    for name in ("contributing", "push", "effective"):
        assert np.allclose(here[name], there[name].isel(direction=[0]), rtol=1e-4)  # in float32


def test_a_cached_loss_weighs_as_the_plain_one(sentences):
    plain, cached = (losses.load(f"st:{name}MultipleNegativesRankingLoss") for name in ("", "Cached"))
    (one, pairs), (other, _) = (first_batch(each, triples()) for each in (plain, cached))
    assert_close(other.weight(pairs), one.weight(pairs), rtol=0, atol=1e-12)
    assert losses.canonical("st:cachedmultiplenegativesranking") == "st:CachedMultipleNegativesRankingLoss"


def test_a_symmetric_loss_has_a_softmax_of_each_direction(sentences):
    loss, pairs = first_batch(losses.load("st:MultipleNegativesSymmetricRankingLoss"), sides())
    assert loss.directions == ("query-candidate", "candidate-query") and pairs.scores.shape == (12, 24)
    narrow = pairs_of(pairs.embeddings)
    closed = both_ways(losses.load("ntxent", {"temperature": 0.05}), narrow)
    weight = loss.weight(pairs)
    assert_close(weight[:, :12] + weight[:, 12:].T, closed, rtol=0, atol=1e-9)
    assert (weight[:, 12:].diagonal() == 0).all() and loss.unit_from.endswith("partition='per_direction')")


def test_inner_products_of_raw_rows_are_cautioned(sentences):
    loss = losses.load("st:MultipleNegativesRankingLoss", {"similarity_fct": "dot_score", "scale": 1})
    data = measures.count(sides(), loss, batch_size=12)
    assert kinds(data) & {"raw norms", "divided norms"} and data.attrs["unit"] == "MNRL(scale=1.0)"
    dots = scores.pairs(sides(), metric="dot")
    assert_close(loss.weight(dots), losses.load("ntxent", {"temperature": 1}).weight(dots), rtol=0, atol=1e-9)


def test_an_object_of_sentence_transformers_keeps_its_model_and_settings(sentences):
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    class Heavy(nn.Module):
        def __deepcopy__(self, memo):
            raise AssertionError("the model of the loss is not copied")

    module = MultipleNegativesRankingLoss(Heavy(), scale=30.0)
    loss = losses.as_loss(module)
    assert loss.name == "st:MultipleNegativesRankingLoss" and loss.settings["scale"] == 30
    pairs = pairs_of(sides())
    assert_close(loss.weight(pairs), losses.load("ntxent", {"scale": 30}).weight(pairs), rtol=0, atol=1e-9)
    assert isinstance(module.model, Heavy)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("st:MultipleNegativesRankingLoss", {"similarity_fct": "cossim"}, "did you mean 'cos_sim'?"),
        ("st:MultipleNegativesRankingLoss", {"gather_across_devices": "true"}, "rows of other processes"),
        ("st:MultipleNegativesRankingLoss", {"model": "x"}, "unknown parameter of st:MultipleNegativesRankingLoss"),
        ("st:MultipleNegativesRankingLoss", {"temperature": 0}, "temperature 0, expected a number above 0"),
        ("st:MatryoshkaLoss", {}, "it adds up another loss over first dimensions; name that loss"),
        ("st:Ranking", {}, "unknown loss of sentence_transformers 'Ranking'"),
    ],
)
def test_what_cannot_be_used_of_sentence_transformers_gets_one_sentence(sentences, name, given, sentence):
    with pytest.raises(InputError) as error:
        losses.load(name, given)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def guided(own=0, **options):
    """Rows with those of a guide that has other opinions."""
    rows = triples(own=own, sharing=1) if own else sides(unit=True)
    generator = torch.Generator().manual_seed(1)
    guide = [
        side + 0.3 * torch.randn(side.shape, generator=generator).to(side) for side in (rows.query, rows.candidate)
    ]
    groups = (rows.query_group, rows.candidate_group)
    options = {"teacher": tuple(guide)} | options
    return Embeddings(rows.query, rows.candidate, *groups, negatives=rows.negatives, **options)


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("given", [{}, {"margin": 0.1}, {"contrast_anchors": "false", "contrast_positives": "false"}])
def test_a_guide_of_sentence_transformers_leaves_out_what_it_does_on_the_shelf(sentences, transformers, own, given):
    loss, pairs = first_batch(losses.load("st:GISTEmbedLoss", {"scale": 20} | given), guided(own))
    weight = loss.weight(pairs)
    assert loss.twin is not None and "filter='guide'" in loss.unit_from
    assert_close(loss.twin_weight(pairs), weight, rtol=0, atol=1e-9)
    assert not any("in other ways" in note for note in loss.notes)
    left_out = loss.twin.masked(pairs)
    assert left_out.any() and (weight[left_out] == 0).all()
    assert measures.count(guided(own), losses.load("st:GISTEmbedLoss", given), batch_size=12).sizes["direction"] == 1


def test_a_guide_without_rows_or_with_another_rule_is_said(sentences, transformers):
    with pytest.raises(InputError, match="rows of a guide, which are not there: guide_query, guide_candidate"):
        measures.count(guided(teacher=torch.zeros(24, 24)), "st:GISTEmbedLoss", batch_size=12)
    with pytest.raises(InputError, match="reads teacher, which the embeddings do not have"):
        measures.count(sides(), "st:GISTEmbedLoss", batch_size=12)
    loss, _ = first_batch(losses.load("st:GISTEmbedLoss", {"margin_strategy": "relative"}), guided())
    assert loss.unit_from == "softmax" and any("its unit is measured" in note for note in loss.notes)


@pytest.mark.parametrize(
    ("name", "given", "shelf", "own"),
    [
        ("MarginMSELoss", {}, "margin_mse", {}),
        ("MarginMSELoss", {"similarity_fct": "pairwise_cos_sim"}, "margin_mse", {}),
        ("DistillKLDivLoss", {"temperature": 2}, "kl_distill", {"temperature": 2}),
    ],
)
def test_distillation_of_sentence_transformers_reads_the_teacher_of_each_column(sentences, name, given, shelf, own):
    generator = torch.Generator().manual_seed(2)
    taught = torch.rand(24, 3, generator=generator, dtype=torch.float64)
    loss, pairs = first_batch(losses.load(f"st:{name}", given), guided(2, teacher=taught))
    place = torch.cat([torch.arange(12)[:, None], (pairs.source == 1).nonzero()[:, 1].reshape(12, 2)], dim=1)
    positive = torch.arange(3).expand(12, 3) == 0
    narrow = cocos.Pairs(pairs.scores.gather(1, place), positive, teacher=pairs.teacher.gather(1, place))
    closed = losses.load(shelf, own).weight(narrow)
    assert_close(loss.weight(pairs).gather(1, place), closed, rtol=0, atol=1e-9)
    assert loss.weight(pairs).abs().sum().item() == pytest.approx(closed.abs().sum().item())
    assert_close(loss.unit(pairs), losses.load(shelf, own).unit(narrow)) and loss.unit_from != "unknown"


def test_graded_pairs_of_sentence_transformers_have_the_couples_of_cosent(sentences, tmp_path):
    grades = torch.arange(24) % 4 / 4
    loss, pairs = first_batch(losses.load("st:CoSENTLoss", {"temperature": 0.1}), guided(teacher=None, grades=grades))
    shelf = losses.load("cosent", {"scale": 10})
    assert_close(loss.weight(pairs), shelf.weight(pairs), rtol=0, atol=1e-12)
    single = pairs.scores[0].clone().requires_grad_()
    worse = 10 * (single[:, None] - single[None, :])
    grade = pairs.embeddings.grades
    value = torch.cat([worse[grade[:, None] < grade[None, :]], torch.zeros(1)]).logsumexp(dim=0)
    assert_close(loss.weight(pairs).sum(dim=0), torch.autograd.grad(value, single)[0], rtol=0, atol=1e-9)
    real = measures.verify(loss, guided(teacher=None, grades=grades), batch_size=12)
    assert real.attrs["faults"] == "" and "equal to cosent" in real.attrs["notes"]
    other = pairs.with_scores(pairs.scores.flip(1))
    assert_close(loss.weight(other), shelf.weight(other), rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="add the array grades"):
        measures.count(sides(), "st:CoSENTLoss", batch_size=12)
    (tmp_path / "sentence_transformers" / "losses.py").write_text(SENTENCES.replace("logsumexp(dim=0)", "sum()"))
    forget_now("sentence_transformers")
    with pytest.raises(InputError, match="so the couples of graded pairs cannot be told apart"):
        measures.count(guided(teacher=None, grades=grades), "st:CoSENTLoss", batch_size=12)


def forget_now(package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def slow_views(query, candidate, temperature, decoupled):
    """Sum over the queries of half of the loss of each view, by loops over the 2 Q rows of SimCLR."""
    rows = torch.nn.functional.normalize(torch.cat([query, candidate]), dim=1)
    number, total = len(query), 0
    for i in range(2 * number):
        positive = (i + number) % (2 * number)
        others = [j for j in range(2 * number) if j != i and not (decoupled and j == positive)]
        terms = torch.stack([rows[i] @ rows[j] / temperature for j in others])
        total = total + terms.logsumexp(dim=0) - rows[i] @ rows[positive] / temperature
    return total / 2


@pytest.mark.parametrize(("name", "shelf"), [("NTXentLoss", "NTXent"), ("DCLLoss", "DCL")])
def test_two_views_of_lightly_are_weighed_by_all_of_their_directions(lightly, name, shelf):
    loss, pairs = first_batch(losses.load(f"lightly:{name}", {"temperature": 0.2}), sides())
    part = pairs.embeddings
    query, candidate = (rows.clone().requires_grad_() for rows in (part.query, part.candidate))
    whole = torch.autograd.grad(slow_views(query, candidate, 0.2, name == "DCLLoss"), [query, candidate])
    moved = part.rows(torch.arange(12), torch.arange(12))
    moved.__dict__.update(query=query, candidate=candidate)
    by_scores = torch.autograd.grad((loss._scores(moved) * loss.weight(pairs)).sum(), [query, candidate])
    for one, other in zip(whole, by_scores, strict=True):
        assert_close(one, other, rtol=0, atol=1e-9)
    assert loss.unit_from == f"{shelf}(temperature=0.2), half of each direction"
    assert_close(loss.twin_weight(pairs), loss.weight(pairs), rtol=0, atol=1e-9)
    assert torch.unique(loss.unit(pairs)).tolist() == [pytest.approx(5)]
    share = loss.weight(pairs).abs() / loss.unit(pairs)  # the mean of two softmaxes
    shelved = losses.load(shelf.lower(), {"temperature": 0.2})
    own = scores.cosine(torch.cat([part.query, part.candidate]), torch.cat([part.query, part.candidate]))
    positive = torch.eye(24, dtype=torch.bool).roll(12, dims=1)
    both = cocos.Pairs(own, positive, ~positive & ~torch.eye(24, dtype=torch.bool))
    views = shelved.weight(both).abs() / shelved.unit(both)
    for mask, of_views in ((pairs.negative, both.negative), (pairs.positive, both.positive)):
        means = torch.where(of_views, views, 0).sum(dim=1).unflatten(0, (2, 12)).mean(dim=0)
        assert_close(torch.where(mask, share, 0).sum(dim=1), means, rtol=0, atol=1e-9)
        assert (means <= 1).all()
    data = measures.count(sides(), loss, batch_size=12)
    assert list(data["source"].values) == ["in-batch", "query-query", "candidate-query", "candidate-candidate"]


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("lightly:NTXentLoss", {"memory_bank_size": 8}, "it keeps rows of earlier batches"),
        ("lightly:DCLLoss", {"gather_distributed": "true"}, "it gathers rows of other processes"),
        ("lightly:BarlowTwinsLoss", {}, "it compares the dimensions of embeddings"),
        ("lightly:NTXent", {"tau": 1}, "unknown parameter of lightly:NTXentLoss 'tau'"),
    ],
)
def test_what_cannot_be_used_of_lightly_gets_one_sentence(lightly, name, given, sentence):
    with pytest.raises(InputError) as error:
        losses.load(name, given)
    assert sentence in str(error.value) and "\n" not in str(error.value)


REAL = [
    ("open_clip:ClipLoss", {"logit_scale": 20.0}, 0),
    ("open_clip:SigLipLoss", {"logit_scale": 20.0}, 0),
    *(
        (f"st:{name}", {}, own)
        for own in (0, 1, 2)
        for name in (
            "MultipleNegativesRankingLoss",
            "CachedMultipleNegativesRankingLoss",
            "MultipleNegativesSymmetricRankingLoss",
            "CachedMultipleNegativesSymmetricRankingLoss",
        )
    ),
    ("st:MultipleNegativesRankingLoss", {"directions": ",".join(WAYS)}, 0),
    ("st:MultipleNegativesRankingLoss", {"directions": ",".join(WAYS)}, 2),
    ("st:MultipleNegativesRankingLoss", {"hardness_mode": "hard_negatives", "hardness_strength": 5}, 2),
    ("st:GISTEmbedLoss", {"temperature": 0.05}, "guide"),
    ("st:GISTEmbedLoss", {"temperature": 0.05, "margin": 0.1}, "guide 1"),
    ("st:MarginMSELoss", {}, "teacher"),
    ("st:DistillKLDivLoss", {"temperature": 2}, "teacher"),
    ("st:CoSENTLoss", {}, "grades"),
    ("st:AnglELoss", {}, "grades"),
    ("lightly:NTXentLoss", {"temperature": 0.1}, 0),
    ("lightly:DCLLoss", {}, 0),
    ("lightly:DCLWLoss", {}, 0),
]


def rows_for(own):
    """Embeddings of a case of parity."""
    options = {
        "guide": guided,
        "guide 1": lambda: guided(1),
        "teacher": lambda: guided(2, teacher=torch.rand(24, 3, generator=torch.Generator().manual_seed(0))),
        "grades": lambda: guided(teacher=None, grades=torch.arange(24) % 4 / 4),
    }
    if isinstance(own, str):
        return options[own]()
    return triples(72, own) if own else sides(72)


@pytest.mark.filterwarnings("ignore:The MultipleNegativesSymmetricRankingLoss is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The CachedMultipleNegativesSymmetricRankingLoss is deprecated:DeprecationWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "given", "own"), REAL)
def test_parity_with_the_installed_library(name, given, own, dtype):
    """The gap is printed with -s; skipped where the library is missing, as on most machines."""
    pytest.importorskip({"st": "sentence_transformers"}.get(package := name.partition(":")[0], package))
    run = prepare(rows_for(own), losses.load(name, given), batch_size=24, dtype=dtype)
    for pairs in (p for batch in run.plan.batches for p in run.pairs(run.sides[0][1], batch, whole=True)):
        loss = run.loss
        ours, theirs = loss.twin_weight(pairs), loss.weight(pairs)
        if loss.graded:
            ours, theirs = ours.sum(dim=0), loss._weigh(pairs).diagonal()
        gap = float((ours - theirs).abs().max() / theirs.abs().max())
        print(f"{name} {given} {own} hard, {dtype}: {gap:.1e} of the largest weight, {theirs.abs().max():.4g}")
        assert math.isfinite(gap) and gap < 50 * torch.finfo(pairs.scores.dtype).eps
