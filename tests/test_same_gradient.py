"""`cocos verify --same-as A B`: are two losses the same gradient, and what differs; files and commands."""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize
from typer.testing import CliRunner

import cocos
from cocos import measures
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.measures.same_gradient import NEXT_STEPS, OUTCOMES
from cocos.measures.shared.pair_gradients import synthetic

CPU = torch.device("cpu")


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def verdict(a, b, *more, **options):
    return measures.same_gradient(a, b, *more, **options).attrs


def infonce(query, candidate, negatives=None, scale=10.0, own=1.0, others=1.0, positive=1.0):
    """InfoNCE with a factor for the exponentials of hard negatives, as plain as can be."""
    query, candidate = normalize(query, dim=1), normalize(candidate, dim=1)
    logits = scale * query @ candidate.T
    if negatives is not None:
        hard = scale * query @ normalize(negatives, dim=2).flatten(0, 1).T
        mine = torch.eye(len(query), dtype=torch.bool).repeat_interleave(negatives.shape[1], dim=1)
        hard = hard + torch.where(mine, own, others).to(hard).log()
        logits = torch.cat([logits, hard], dim=1)
    return positive * cross_entropy(logits, torch.arange(len(query)))


def symmetric(query, candidate):
    return (infonce(query, candidate) + infonce(candidate, query)) / 2


# ---------------------------------------------------------------------------------------------------- the sentences


def test_a_sum_in_place_of_a_mean():
    found = verdict("ntxent", "ntxent@reduction=sum")
    assert found["verdict"] == "the same up to a factor of 64.00 (mean against sum over 64 queries?)"
    found = verdict(infonce, lambda query, candidate: 3 * infonce(query, candidate))
    assert found["verdict"] == "the same up to a factor of 3.00 (mean against sum? world size?)"


def test_another_temperature():
    found = verdict("ntxent", "ntxent@temperature=0.05")
    assert (found["found"], found["ratio"]) == ("temperature", pytest.approx(2)) and "0.05 instead of 0.1" in found[
        "verdict"
    ]
    found = verdict(infonce, lambda query, candidate: infonce(query, candidate, scale=3.0))
    assert found["found"] == "temperature" and found["verdict"].endswith(" = -7.00")


def test_sigmoid_without_balance_has_no_temperature():
    """Scale 1 and no bias instead of 10 and -10: the ratio of the weights alone resembles another temperature."""

    def binary(query, candidate):
        scores = normalize(query, dim=1) @ normalize(candidate, dim=1).T
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.eye(len(scores), dtype=scores.dtype))

    assert verdict("siglip", binary)["found"] == "other"
    assert verdict("siglip@scale=1,bias=0", binary)["ratio"] == pytest.approx(1 / 64)


def test_another_temperature_and_what_is_beside_it():
    message = verdict("mnrl", "mnrl@scale=25")["verdict"]
    assert verdict("mnrl", "mnrl@scale=25,reduction=sum")["verdict"] == f"{message}, and a factor of 64.00"
    assert verdict("mnrl", "mnrl@hardness=5")["verdict"] == f"{message}, for the negatives only"


def test_queries_and_candidates_exchanged():
    assert verdict(infonce, lambda query, candidate: infonce(candidate, query))["found"] == "exchanged"
    assert verdict(infonce, symmetric)["found"] == "directions"
    twice = verdict(lambda query, candidate: 2 * symmetric(query, candidate), "ntxent")
    assert twice["found"] == "directions" and twice["verdict"].endswith("a factor of 2.00")


def test_hard_negatives_that_are_left_out():
    found = verdict("ntxent", lambda query, candidate, negatives=None: infonce(query, candidate))
    assert (found["found"], found["ratio"]) == ("source", 0)
    assert found["notes"] == "without hard negatives they are the same"

    def foreign(query, candidate, negatives=None):
        return infonce(query, candidate, negatives, own=0.0)

    assert verdict("ntxent", foreign)["verdict"].startswith("B lacks own hard negatives, ")


def test_one_source_alone():
    def weakened(query, candidate, negatives=None):
        query, rows = normalize(query, dim=1), [normalize(candidate, dim=1)]
        if negatives is not None:
            rows.append(normalize(negatives, dim=2).flatten(0, 1))
        logits = 10 * query @ torch.cat(rows).T
        own = torch.zeros_like(logits, dtype=torch.bool)
        if negatives is not None:
            own[:, len(query) :] = torch.eye(len(query)).repeat_interleave(negatives.shape[1], dim=1) > 0
        logits = torch.where(own, 0.25 * logits + 0.75 * logits.detach(), logits)
        return cross_entropy(logits, torch.arange(len(query)))

    found = verdict("ntxent", weakened)
    assert found["ratio"] == pytest.approx(0.25) and found["found"] == "source"


def test_the_opposite():
    found = verdict("ntxent", lambda query, candidate: -infonce(query, candidate))
    assert (found["found"], found["ratio"]) == ("sign", pytest.approx(-1)) and not found["same"]


def test_targets_that_are_shifted():
    def shifted(query, candidate):
        logits = 10 * normalize(query, dim=1) @ normalize(candidate, dim=1).T
        return cross_entropy(logits, torch.arange(len(query)).roll(1))

    found = verdict("ntxent", shifted)
    assert found["found"] == "misaligned" and "queries 0-63 " in found["verdict"]


def test_a_batch_on_which_both_are_idle_is_passed_over():
    def hinge(query, candidate, negatives=None):
        return 0 * query.sum() if negatives is None else infonce(query, candidate, negatives)

    found = verdict(hinge, hinge)
    assert found["same"] and found["hard_negatives"] == 2
    assert verdict(hinge, hinge, batches=3)["hard_negatives"] == 2
    assert verdict(hinge, hinge, batches=1)["found"] == "idle"


def test_only_one_normalises():
    def dots(query, candidate):
        return cross_entropy(10 * query @ candidate.T, torch.arange(len(query)))

    found = verdict("ntxent", dots)
    assert found["same"] and found["found"] == "normalised"
    rows = synthetic(40, 0, 0, CPU)
    raw = cocos.Embeddings(3 * rows.query, 3 * rows.candidate)
    assert not verdict("ntxent", dots, raw)["same"]


def test_pairs_that_cancel_in_their_row_are_found():
    """More candidates than dimensions: weights of one query that sum to nothing in its row, on this batch."""
    rows = synthetic(64, 0, 0, CPU)
    null = torch.linalg.svd(rows.candidate.T)[2][-1]
    assert (null @ rows.candidate).abs().max() < 1e-12

    def balanced(query, candidate):
        return infonce(query, candidate) + (null * (candidate.detach() @ query[0])).sum()

    found = verdict(infonce, balanced, batches=1)
    assert found["gap"] < 1e-9 and not found["same"]


def test_gradients_that_are_none_or_not_finite():
    assert verdict("ntxent", lambda query, candidate: 0 * query.sum())["found"] == "none"
    broken = verdict("ntxent", lambda query, candidate: (query - query).square().sum(dim=1).sqrt())
    assert broken["found"] == "nan" and broken["verdict"].endswith("queries 0-63")
    assert verdict(*2 * [lambda query, candidate: 0 * query.sum()])["found"] == "idle"


# ---------------------------------------------------------------------------------------------------- files, commands


@pytest.fixture
def file(tmp_path):
    rows = synthetic(48, 0, 5, CPU)
    np.savez(tmp_path / "e.npz", query=3 * rows.query.numpy(), candidate=2 * rows.candidate.numpy())
    return tmp_path / "e.npz"


LIBRARIES = [
    ("st:MultipleNegativesRankingLoss", "mnrl"),
    ("st:CachedMultipleNegativesRankingLoss", "st:MultipleNegativesRankingLoss"),
    ("open_clip:SigLipLoss", "siglip"),
    ("pml:NTXentLoss", "ntxent@temperature=0.07"),
    ("pml:MultiSimilarityLoss", "multi_similarity"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("a", "b"), LIBRARIES)
def test_losses_of_libraries_are_those_of_the_shelf(a, b):
    found = verdict(a, b)
    assert found["verdict"] == "the same" and found["gap"] < 1e-12


def test_the_command(file):
    done = call("verify", "--same-as", "ntxent", "ntxent@ranks=2", file, "--batch-size", 16, "--json", "-q")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["same"] and found["pairs"] == 16 and found["a"] == "ntxent"
    for by_kind in (found["kinds"]["queries"], found["kinds"]["candidates"]):
        ratios = {kind: numbers["ratio"] for kind, numbers in by_kind.items() if numbers["part"] is not None}
        assert ratios == {"positives": pytest.approx(1), "in-batch": pytest.approx(1)}
    done = call("verify", "--same-as", "ntxent", "ntxent@accumulate=2", file, "--batch-size", 16)
    assert done.exit_code == 1 and "verdict: B has no pairs across mini-batches of 8 rows" in done.stdout
    assert call("verify", "--same-as", "ntxent", "mnrl", "-p", "temperature=0.3", "-q").exit_code == 0
    done = call("verify", "--same-as", "ntxent", "supcon", "-p", "temperature=0.3", "-q")
    said = "the same with one positive per query, different with several"
    assert done.exit_code == 1 and said in " ".join(done.stdout.split())


def test_an_answer_that_is_not_the_same_says_what_to_do_next(file):
    done = call("verify", "--same-as", "ntxent", "ntxent@accumulate=2", file, "--batch-size", 16)
    assert "next: gather candidates with gradient" in " ".join(done.stdout.split())
    assert "next:" not in call("verify", "--same-as", "ntxent", "ntxent", file).stdout
    assert {kind for kind, _ in OUTCOMES.values()} - {"same", "other"} == NEXT_STEPS.keys()


def test_the_dataset_is_saved(file, tmp_path):
    out = tmp_path / "found.nc"
    assert call("verify", "--same-as", "ntxent", "triplet", file, "--out", out, "-q").exit_code == 1
    data = cocos.results.open(out)
    assert data.attrs["verdict"].startswith("different") and dict(data.sizes)["row"] == 96


def test_a_function_of_mine(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch.nn.functional import cross_entropy, normalize\n"
        "def clip(query, candidate, temperature=0.1):\n"
        "    logits = normalize(query) @ normalize(candidate).T / temperature\n"
        "    return cross_entropy(logits, torch.arange(len(logits)))\n"
    )
    mine = f"{tmp_path / 'mine.py'}:clip"
    done = call("verify", "--same-as", mine, "ntxent", "--json", "-q")
    assert done.exit_code == 0, done.output
    notes = [finding["sentence"] for finding in json.loads(done.stdout)["findings"]]
    assert notes == [f"{mine} takes no hard negatives, so the batches have none"]
    assert (
        call("verify", "--same-as", f"{mine}@temperature=0.2,chunks=8", "ntxent@temperature=0.2", "-q").exit_code == 0
    )
    done = call("verify", "--same-as", f"{mine}@temprature=0.2", "ntxent")
    assert done.exit_code == 2 and "did you mean 'temperature'?" in done.output


def test_a_module_of_one_dtype_is_told_how_to_run(tmp_path):
    (tmp_path / "heads.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Headed(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        torch.manual_seed(0)\n"
        "        self.head = nn.Linear(24, 8)\n"
        "    def forward(self, query, candidate):\n"
        "        scores = self.head(query) @ self.head(candidate).T\n"
        "        return nn.functional.cross_entropy(scores, torch.arange(len(scores)))\n"
    )
    name = f"{tmp_path / 'heads.py'}:Headed"
    done = call("verify", "--same-as", name, name)
    assert done.exit_code == 2 and f"in the dtype of training it is {name}@dtype=float32" in done.output
    done = call("verify", "--same-as", f"{name}@dtype=float32", f"{name}@chunks=8,dtype=float32", "-q")
    assert done.exit_code == 0, done.output


def test_labelled_sets_proxies_and_hard_negatives_of_files():
    rows = synthetic(40, 2, 0, CPU)
    labels = torch.arange(20).repeat(2)
    labelled = cocos.Embeddings.labelled(rows.matrix[:40], labels)
    found = verdict("ntxent", "ntxent@chunks=4", labelled, batch_size=64)
    assert found["same"] and found["pairs"] == 20 and "batches of 20 pairs" in found["notes"]
    proxies = cocos.Embeddings.labelled(rows.query, torch.arange(40) % 10, proxies=rows.candidate[:10])
    assert verdict("ntxent", "ntxent@chunks=4", proxies)["pairs"] == 10
    negatives = (torch.arange(40)[:, None] + torch.tensor([5, 9])) % 40
    given = cocos.Embeddings(rows.query, rows.candidate, negatives=negatives)
    assert verdict("ntxent", "ntxent@chunks=4", given, batch_size=16)["hard_negatives"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ntxent", "ntxent@chukns=3"), "unknown way or parameter of ntxent 'chukns': did you mean 'chunks'?"),
        (("ntxent", "ntxent@ranks=3"), "64 rows do not make 3 equal parts"),
        (("ntxent", "ntxent@accumulate=64"), "64 rows do not make 64 equal parts of at least 2"),
        (("nosuch@chunks=3", "ntxent"), "unknown loss 'nosuch'"),
        (("ntxent", "ntxent@chunks=0"), "chunks=0, expected an integer of at least 1: chunks of this many"),
        (("ntxent", "ntxent@chunks"), "'chunks' after @, expected NAME=VALUE"),
        (("ntxent", "ntxent@"), "after @, expected NAME=VALUE"),
        (("ntxent", "@chunks=3"), "no loss before @"),
        (("ntxent", "ntxent@dtype=int8"), "dtype=int8, expected one of float64, float32, bfloat16, float16"),
        (("ntxent", "ntxent@ranks=2,chunks=4"), "chunks and ranks are given; one way of computing at a time"),
        (("ntxent", "ntxent@chunks=3,chunks=4"), "chunks is given twice"),
        (("ntxent", "ntxent@gather=none"), "gather and loss belong to ranks, like ntxent@ranks=2,gather=detached"),
        (("ntxent", "ntxent@ranks=2,gather=none,loss=global"), "loss= has no meaning"),
        (("ntxent", "ntxent@temperature=-1"), "temperature must be finite and above 0"),
        (("ntxent", "ntxent", "-p", "margin=1"), "parameter margin: neither ntxent nor ntxent has it"),
        (("ntxent", "ntxent", "--loss", "ntxent"), "--same-as names both losses"),
        (("ntxent", "ntxent", "--batch-size", "3"), "batch size: 3, expected an integer of at least 4"),
        (("ntxent",), "requires 2 arguments"),
    ],
)
def test_bad_input_is_one_sentence(arguments, said):
    done = call("verify", "--same-as", *arguments)
    assert done.exit_code == 2 and said in done.output.replace("\n", " "), done.output
    assert "Traceback" not in done.output


def test_code_that_fails_is_named():
    def broken(query, candidate):
        raise RuntimeError("of mine")

    with pytest.raises(InputError, match="broken: RuntimeError: of mine"):
        measures.same_gradient("ntxent", broken)
    with pytest.raises(InputError, match="it returns shape"):
        measures.same_gradient("ntxent", lambda query, candidate: query @ candidate.T)
    with pytest.raises(InputError, match="its result has no gradient"):
        measures.same_gradient("ntxent", lambda query, candidate: query.detach().sum())


def test_few_groups_and_zero_rows_are_refused():
    with pytest.raises(InputError, match="3 groups have a query and a candidate of its own, expected at least 4"):
        measures.same_gradient("ntxent", "ntxent", cocos.Embeddings(torch.eye(3), 2 * torch.eye(3)))
    with pytest.raises(InputError, match="zero vector"):
        measures.same_gradient(
            "triplet_euclidean", "triplet_euclidean", cocos.Embeddings(torch.zeros(9, 3), torch.ones(9, 3))
        )


def test_a_loss_of_one_width_is_compared_by_rows():
    weight = torch.randn(24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def projected(query, candidate):
        return infonce(query @ weight, candidate @ weight)

    data = measures.same_gradient(projected, projected)
    assert data.attrs["same"] and "single pairs are not compared" in data.attrs["notes"]
    assert np.isnan(data["ratio"].values).all() and math.isclose(float(data["row_ratio"].mean()), 1)


# ----------------------------------------------------------------------- several positives, scores beyond the data


def terms(scores, positive, kept):
    """Log-softmax of each positive against the columns that are kept, at temperature 0.1, (Q, C), 0 elsewhere."""
    rest = torch.logsumexp((10 * scores).masked_fill(~kept, -torch.inf), dim=1, keepdim=True)
    return torch.where(positive, torch.nn.functional.softplus(rest - 10 * scores), 0)


def summed(scores, positive, negative):
    return terms(scores, positive, negative).sum(dim=1)


def mean_over_positives(scores, positive, negative):
    return summed(scores, positive, negative) / positive.sum(dim=1).clamp(min=1)


def sum_of_log_softmaxes(scores, positive, negative):
    """SupCon's softmax, whose denominator has all positives, summed over them."""
    rest = torch.logsumexp((10 * scores).masked_fill(~(positive | negative), -torch.inf), dim=1, keepdim=True)
    return torch.where(positive, rest - 10 * scores, 0).sum(dim=1)


@pytest.fixture
def many(tmp_path):
    """A file with four candidates a group, and one with a single one."""
    generator = np.random.default_rng(0)
    query = generator.normal(size=(40, 12))
    rows = {"query": query, "query_group": np.arange(40)}
    for name, times in (("many.npz", 4), ("one.npz", 1)):
        candidate = np.repeat(query, times, axis=0) + 0.5 * generator.normal(size=(40 * times, 12))
        np.savez(tmp_path / name, candidate=candidate, candidate_group=np.arange(40).repeat(times), **rows)
    return tmp_path


@pytest.mark.parametrize("name", [None, "many.npz"])
def test_several_positives_tell_a_mean_and_a_softmax_of_all_from_a_sum(many, name):
    given = None if name is None else cocos.open(many / name)
    assert verdict("ntxent", summed, given, batch_size=16)["verdict"] == "the same"
    found = verdict("ntxent", mean_over_positives, given, batch_size=16)
    assert (found["same"], found["found"]) == (0, "positives") and "instead of their sum" in found["verdict"]
    for other in (sum_of_log_softmaxes, "supcon"):
        found = verdict("ntxent", other, given, batch_size=16)["verdict"]
        assert found.startswith("the same with one positive per query, different with several: cosine 0.")


def test_a_file_of_labels_has_several_positives(many):
    generator = torch.Generator().manual_seed(0)
    labelled = cocos.Embeddings.labelled(torch.randn(48, 8, generator=generator), torch.arange(48) // 6)
    found = verdict("ntxent", mean_over_positives, labelled, batch_size=16)
    assert found["found"] == "positives"


def test_the_verdict_says_where_a_query_had_one_positive_alone(many):
    one = cocos.open(many / "one.npz")
    for other in (summed, mean_over_positives):
        found = verdict("ntxent", other, one, batch_size=16)
        assert found["verdict"] == "the same, with one positive a query" and found["same"]
    assert verdict("ntxent", "ntxent@chunks=8", one, batch_size=16)["verdict"] == "the same"  # one loss, two ways


def clamped(query, candidate, low=-1.0, high=1.0):
    scores = normalize(query, dim=1) @ normalize(candidate, dim=1).T
    return cross_entropy(10 * scores.clamp(low, high), torch.arange(len(query)))


@pytest.mark.parametrize(
    ("low", "high", "said"), [(-1.0, 0.95, "above 0.95"), (-0.95, 1.0, "below -0.9"), (-1.0, 0.99, "above 0.99")]
)
def test_a_clamp_that_the_data_do_not_reach_is_found(low, high, said):
    rows = synthetic(64, 0, 0, CPU)
    assert (normalize(rows.query, dim=1) @ normalize(rows.candidate, dim=1).T).abs().max() < 0.95
    found = verdict("ntxent", lambda query, candidate: clamped(query, candidate, low, high))
    assert found["verdict"].startswith("the same on the scores of the data, but B has no gradient at cosines " + said)
    assert found["verdict"].endswith("(a clamp?)") and found["found"] == "beyond" and not found["same"]
    assert verdict("ntxent", clamped)["verdict"] == "the same"
