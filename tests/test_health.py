"""Collapsed embeddings are named in every output, and nothing else is: spread, rank, duplicates, what reaches them."""

import itertools
import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, losses, measures, plots, reports, results
from cocos.cli import app
from cocos.counting import findings, health
from cocos.embeddings.sampling import Batch
from cocos.monitor.detectors.collapse import Collapse
from cocos.reports import table
from finding_kinds import kinds

GENERATOR = torch.Generator().manual_seed(0)
POINT = torch.nn.functional.normalize(torch.randn(64, generator=GENERATOR), dim=0)


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def labelled(rows, classes=None):
    labels = torch.arange(len(rows)) // 4 if classes is None else torch.arange(len(rows)) % classes
    return Embeddings.labelled(rows, labels)


def side(rows, metric="cosine", which="query"):
    found = Embeddings(rows, rows, torch.arange(len(rows)), torch.arange(len(rows)) + len(rows))
    return health.side(rows, metric, which, found.norms[0], found.projections[0])


GONE = {
    "one vector": POINT.expand(300, 64),
    "one vector in half precision": POINT.half().expand(300, 64),
    "one vector of bfloat16": POINT.bfloat16().expand(300, 64),
    "one vector of float64": POINT.double().expand(300, 64),
    "rounding": POINT + 1e-7 * noise(300, 64),
    "noise of 1e-6": POINT + 1e-6 * noise(300, 64),
    "noise of 1e-6 in float64": POINT.double() + 1e-6 * noise(300, 64).double(),
    "one direction of any length": POINT * (1 + torch.arange(300)[:, None]),
    "all but one row": torch.cat([POINT.expand(299, 64), noise(1, 64)]),
    "two rows": POINT.expand(2, 64),
    "one dimension": torch.ones(40, 1),
}
THERE = {
    "anywhere": noise(300, 64),
    "a cone with cosines of .99": 10 * POINT + noise(300, 64) / 8,
    "noise of 1e-3": POINT + 1e-3 * noise(300, 64),
    "noise of 1e-4": POINT + 1e-4 * noise(300, 64),
    "two points": torch.stack([POINT, -POINT])[torch.arange(300) % 2],
    "classes that are points": noise(30, 64)[torch.arange(300) % 30],
    "a plane": noise(300, 2) @ noise(2, 64),
    "one in fifty elsewhere": torch.where((torch.arange(300) % 50 == 0)[:, None], noise(300, 64), POINT),
    "two signs": torch.tensor([1.0, -1.0])[torch.arange(40) % 2][:, None],
    "one row": noise(1, 64),
}


@pytest.mark.parametrize("name", GONE)
def test_one_point_up_to_rounding_is_a_collapse(name):
    found = side(GONE[name])
    assert found["collapsed"] and found["effective_rank"] == 0 and found["spread"] < 0.1


@pytest.mark.parametrize("name", THERE)
def test_nothing_else_is(name):
    assert not side(THERE[name])["collapsed"]


def test_lengths_tell_rows_apart_where_the_metric_reads_them():
    rows = GONE["one direction of any length"]
    for metric in ("dot", "euclidean", "squared_euclidean", "mahalanobis"):
        assert not side(rows, metric)["collapsed"]
    assert side(rows, "cosine_dot")["collapsed"] and not side(rows, "cosine_dot", "candidate")["collapsed"]
    away = 1e4 + noise(300, 64)  # differences keep what products lose
    assert not side(away, "euclidean")["collapsed"]
    assert side(POINT.expand(300, 64), "euclidean")["collapsed"]
    assert side(torch.zeros(30, 8), "dot")["collapsed"]


def test_spread_and_rank_agree_with_the_definitions():
    rows = noise(200, 16).double() @ torch.diag(torch.linspace(1, 3, 16).double())
    found = side(rows, "dot")
    centred = rows - rows.mean(dim=0)
    values = torch.linalg.svdvals(centred)
    part = values / values.sum()
    assert found["effective_rank"] == pytest.approx(math.exp(-(part * part.log()).sum().item()), rel=1e-6)
    length = rows.square().sum(dim=1).mean().sqrt()
    assert found["spread"] == pytest.approx((centred.square().sum(dim=1).mean().sqrt() / length).item())
    wide = torch.eye(10, 100)  # 10 rows span 9 dimensions around their mean
    assert side(wide)["effective_rank"] == pytest.approx(9)
    assert side(THERE["a plane"])["effective_rank"] == pytest.approx(2, abs=0.01)
    assert side(THERE["two points"])["effective_rank"] == pytest.approx(1)


def test_a_large_side_is_looked_at_by_a_seeded_sample():
    rows = noise(3000, 8)
    assert side(rows) == side(rows.clone())
    assert (side(rows)["sampled"], side(rows)["rows"]) == (health.SPREAD_ROWS, 3000)


def test_duplicates_are_counted_exactly_and_up_to_rounding():
    rows = noise(2000, 32)
    assert (side(rows)["duplicates"], side(rows)["near_duplicates"]) == (0, 0)
    rows[1000:1040] = rows[:40]
    rows[1500:1520] = rows[100:120] * (1 + 2**-23)
    found = side(rows)
    assert (found["duplicates"], found["near_duplicates"]) == (40, 60)
    assert side(torch.eye(64))["duplicates"] == 0
    assert side(-torch.zeros(3, 4) + torch.tensor([0.0, -0.0, 0.0, 1.0]))["duplicates"] == 2
    found = side(THERE["classes that are points"])
    assert found["duplicates"] == 270 and not found["collapsed"]
    for columns in (16, 39, 40):  # rows that agree in the columns of the first line, and differ behind them
        rows = torch.nn.functional.normalize(noise(500, 80), dim=1)
        rows[:, :columns] = 0.01
        rows[250:280] = rows[:30]
        assert side(rows, "dot")["duplicates"] == side(rows, "dot")["near_duplicates"] == 30


@pytest.mark.parametrize("name", ["ntxent", "supcon", "contrastive_linear", "multi_similarity", "linear_softmax"])
def test_what_reaches_the_embeddings_is_what_autograd_says(name):
    """Pull, push and the gradient of raw queries, of a healthy batch and of a collapsed one."""
    loss = losses.load(name)
    for rows in (noise(24, 8).double(), noise(1, 8).double().expand(24, 8)):
        set_ = labelled(rows)
        found = measures.health(set_, loss, batch_size="all")
        data = measures.decomposition(set_, loss, batch_size="all").sel(direction="s2s")
        one = found.sel(direction="s2s")
        if float(one["cancellation"]) == float(one["cancellation"]):
            assert float(one["cancellation"]) == pytest.approx(float(data["cancellation"].mean()), abs=1e-9)
            total = data["pull_norm"] + data["push_norm"]
            left = data["tangential_norm"] if "tangential_norm" in data else data["net_norm"]
            assert float(one["reaching"]) == pytest.approx(float((left / total).mean()), abs=1e-9)
        if not rows.std(dim=0).any():
            assert bool(found["collapsed"].all())
            assert not float(one["reaching"]) > 1e-6


def test_ties_are_counted():
    query, candidate = torch.eye(6), torch.eye(6)
    candidate[3] = candidate[0]  # the first query's positive, and a negative of it
    batch = Batch(torch.arange(6), torch.arange(6), paired=True)
    found = measures.health(Embeddings(query, candidate), "ntxent", batches=[batch])
    tied = found["tied"].values
    assert tied[0] == pytest.approx(2 / 6)  # and that of query 3, all of whose candidates but two score 0
    alone = Embeddings(query, torch.eye(6))
    assert not measures.health(alone, "ntxent", batches=[batch])["tied"].values.any()


@pytest.mark.parametrize(("dtype", "tied"), [(torch.float64, 1), (torch.float32, 0)])
def test_scores_in_float64_tie_up_to_rounding_and_those_in_float32_exactly(dtype, tied):
    rows = torch.eye(2, dtype=dtype)
    pairs = cocos.scores.pairs(Embeddings(rows, rows), Batch(torch.arange(2), torch.arange(2), paired=True))
    near = pairs.with_scores(torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=dtype) - torch.finfo(dtype).eps * (1 - rows))
    assert health.felt(losses.load("ntxent").weight(near), near, "cosine")["tied"] == tied
    alone = near.unchecked(positive=near.positive & torch.tensor([[True], [False]]))
    assert health.felt(losses.load("ntxent").weight(alone), alone, "cosine")["tied"] == tied  # of one query


def test_a_count_of_a_collapsed_set_says_so_in_its_dataset():
    set_ = labelled(torch.ones(2720, 64))
    data = measures.count(set_, "ntxent", batches=2)
    found = json.loads(data.attrs["health"])
    assert found["collapsed"] is True and list(found["sides"]) == ["query"]
    assert found["sides"]["query"]["duplicates"] == 2719
    assert found["directions"]["s2s"]["cancellation"] == pytest.approx(1)
    assert found["directions"]["s2s"]["reaching"] == pytest.approx(0)
    assert found["directions"]["s2s"]["tied"] == 1
    assert "all 256 drawn of the 2720 samples" in data.attrs["notes"]
    assert reports.document("count", data)["health"] == found
    plots.count(data, ax=plt.figure().subplots())
    assert "collapsed" in plt.gca().get_title()
    assert "collapsed" in str(table("count", {"ntxent": data.assign_attrs(checkpoint_path="", checkpoint_sha256="")}))


def test_one_side_may_collapse_alone():
    set_ = Embeddings(noise(40, 8), torch.ones(40, 8))
    data = measures.count(set_, "ntxent", batch_size=20)
    found = reports.document("count", data)["health"]
    assert found["collapsed"] and not found["sides"]["query"]["collapsed"]
    assert "all 40 candidates" in data.attrs["notes"] and "collapsed" in kinds(data)
    first, second = found["directions"].values()
    assert first["cancellation"] == pytest.approx(1) and second["cancellation"] < 0.9


def test_proxies_and_neural_collapse():
    proxies, labels = noise(10, 16), torch.arange(100) % 10
    whole = Embeddings.labelled(proxies[labels], labels, proxies)
    found = reports.document("count", measures.count(whole, "normalized_softmax", batch_size=32))["health"]
    assert found["collapsed"] is False and found["sides"]["query"]["duplicates"] == 90
    gone = Embeddings.labelled(noise(100, 16), labels, torch.ones(10, 16))
    data = measures.count(gone, "normalized_softmax", batch_size=32)
    assert "all 10 proxies" in data.attrs["notes"] and "collapsed" in kinds(data)


def test_scores_that_are_visited_have_the_same_health():
    set_ = Embeddings(noise(200, 16), noise(200, 16) + noise(200, 16))
    held = reports.document("count", measures.count(set_, "ntxent", batch_size="all", n90=True))["health"]
    visited = measures.count(set_, "ntxent", batch_size="all")
    found = reports.document("count", visited)["health"]
    assert found["sides"].keys() == held["sides"].keys()
    for name, each in found["directions"].items():
        assert each == pytest.approx(held["directions"][name], abs=1e-5)
        assert each["candidates"] == health.FELT_ROWS
    for collapsed in (torch.ones(200, 16), torch.ones(200, 16).half()):
        data = measures.count(Embeddings(collapsed, collapsed), "ntxent", batch_size="all")
        assert reports.document("count", data)["health"]["collapsed"]


def test_a_large_batch_of_groups_keeps_the_positives_of_its_first_queries(monkeypatch):
    monkeypatch.setattr(health, "FELT_QUERIES", 4)
    monkeypatch.setattr(health, "FELT_CANDIDATES", 10)
    groups = torch.arange(60) % 30
    set_ = Embeddings(noise(30, 8), noise(60, 8), torch.arange(30), groups)
    found = reports.document("count", measures.count(set_, "ntxent", sample="groups", batch_size=30))["health"][
        "directions"
    ]
    for each in found.values():
        assert each["queries"] == 4 and 10 <= each["candidates"] <= 18
        assert 0 < each["cancellation"] < 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("health")
    rows, other = torch.ones(64, 8).numpy(), noise(64, 8).numpy()
    np.savez(folder / "collapsed.npz", query=rows, candidate=rows)
    np.savez(folder / "healthy.npz", query=other, candidate=other + 0.5 * noise(64, 9).numpy()[:, 1:])
    return folder


def test_a_decomposition_has_words_for_negatives_without_force(files):
    found = json.loads(
        CliRunner().invoke(app, ["plot", "decomposition", str(files / "collapsed.npz"), "--json", "-q"]).stdout
    )
    assert all(set(entry["hardest_share_force"].values()) == {None} for entry in found["directions"].values())


def test_the_measure_is_a_dataset_with_the_same_numbers(tmp_path):
    set_ = Embeddings(noise(40, 8), noise(40, 9)[:, 1:])
    data = measures.health(set_, "ntxent", batch_size=20)
    found = reports.document("count", measures.count(set_, "ntxent", batch_size=20))["health"]
    assert json.loads(data.attrs["health"]) == found
    for name, each in found["sides"].items():
        assert float(data["spread"].sel(side=name)) == each["spread"]
    for name, each in found["directions"].items():
        assert float(data["reaching"].sel(direction=name)) == each["reaching"]
    saved = results.open(results.save(data, tmp_path / "health.nc"))
    np.testing.assert_array_equal(saved["spread"], data["spread"])
    str(table("health", data))


# --- alignment and uniformity


def test_alignment_and_uniformity_are_those_of_the_paper():
    """`lalign` and `lunif` of the paper's appendix, on all rows; lengths do not matter, nor does the metric."""
    query, candidate = noise(40, 8), noise(40, 8) + noise(80, 8)[40:]
    for metric in ("cosine", "squared_chord"):
        loss = {"cosine": "ntxent", "squared_chord": "align_uniform"}[metric]
        data = measures.health(Embeddings(5 * query, candidate), loss, batch_size=20)
        x, y = (torch.nn.functional.normalize(rows.double()) for rows in (query, candidate))
        assert float(data["alignment"]) == pytest.approx((x - y).norm(dim=1).pow(2).mean().item(), rel=1e-6)
        assert int(data["alignment_queries"]) == 40
        for side_, rows in zip(("query", "candidate"), (x, y), strict=True):
            expected = torch.pdist(rows).pow(2).mul(-2).exp().mean().log().item()
            assert float(data["uniformity"].sel(side=side_)) == pytest.approx(expected, rel=1e-6)


def test_alignment_is_a_mean_over_queries_of_all_of_their_positives():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 2.0]])
    found = health.alignment(Embeddings.labelled(rows, [0, 0, 0, 1, 2]))
    # of three positives two pairs are at right angles and one agrees: 1, 1 and 2; two samples are alone in their class
    assert found == {"alignment": pytest.approx(4 / 3), "alignment_queries": 3}
    apart = Embeddings(rows[:2], rows[2:], torch.tensor([0, 1]), torch.tensor([2, 3, 4]))
    assert health.alignment(apart) == {"alignment": None, "alignment_queries": 0}


def test_one_point_is_aligned_and_not_uniform():
    data = measures.count(Embeddings(torch.ones(40, 8), torch.ones(40, 8)), "ntxent", batch_size=20)
    found = reports.document("count", data)["health"]
    assert found["alignment"] == pytest.approx(0, abs=1e-12)
    assert found["sides"]["query"]["uniformity"] == pytest.approx(0, abs=1e-12)
    assert side(noise(300, 64))["uniformity"] < -3.7  # evenly spread: near -4
    assert side(noise(1, 64))["uniformity"] is None


def test_a_sample_stands_for_a_large_set(monkeypatch):
    query, candidate = noise(3000, 8), noise(3000, 8) + noise(6000, 8)[3000:]
    sampled = health.alignment(Embeddings(query, candidate))
    monkeypatch.setattr(health, "SPREAD_ROWS", 3000)
    whole = health.alignment(Embeddings(query, candidate))
    assert (sampled["alignment_queries"], whole["alignment_queries"]) == (256, 3000)
    assert sampled["alignment"] == pytest.approx(whole["alignment"], rel=0.1)


@pytest.fixture
def plain(tmp_path):
    np.savez(tmp_path / "e.npz", query=noise(40, 8).numpy(), candidate=(noise(40, 8) + 0.5).numpy())
    return tmp_path / "e.npz"


def test_evaluate_has_geometry_without_any_loss(plain):
    document = json.loads(CliRunner().invoke(app, ["evaluate", str(plain), "--json", "-q"]).stdout)
    assert document["health"]["alignment_queries"] == 40 and document["health"]["sides"]["query"]["uniformity"] < -1


# Rows that do not match, and arrays that are turned


def test_shuffled_sides_are_at_chance_and_the_matching_ones_are_not():
    query = noise(300, 16)
    candidate = query + 0.8 * noise(600, 16)[300:]
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    right, wrong = Embeddings(query, candidate), Embeddings(query, candidate[order])
    for set_, at_chance in ((right, False), (wrong, True)):
        data = measures.count(set_, "ntxent")
        document = reports.document("count", data)
        assert document["health"]["at_chance"] == at_chance
        text = str(table("count", data))
        urgent = findings.first(data.attrs)
        assert len(urgent) == at_chance and all(line in text for line in urgent)
        kinds = set(findings.kinds_of_directions(data).values())
        assert (kinds == {"mispaired"}) == at_chance and "collapsed" not in text
    labels = torch.arange(60) // 4
    rows = noise(60, 8) + 3 * noise(15, 8)[labels]
    assert not health.pairing(Embeddings.labelled(rows, labels))["at_chance"]
    assert health.pairing(Embeddings.labelled(rows, labels[order[order < 60]]))["at_chance"]


def test_chance_is_called_chance_and_little_else_is():
    """Under chance the mean rank is within two deviations of 1/2 from below in 97.7 % of the draws."""
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randn(200, 8, generator=generator) for _ in range(80)]
    found = [health.pairing(Embeddings(*pair)) for pair in itertools.pairwise(drawn)]
    assert np.mean([each["at_chance"] for each in found]) > 0.9
    weak = [health.pairing(Embeddings(one, one + 6 * other)) for one, other in itertools.pairwise(drawn)]
    assert not any(each["at_chance"] for each in weak)
    assert max(each["nearest"] for each in weak) < 0.2  # though R@1 is low
    few = health.pairing(Embeddings(drawn[0][:8], drawn[1][:8]))
    assert few["negatives_above"] is None and not few["at_chance"]


def offset(size: float, number: int = 200) -> Embeddings:
    """Pairs that match, and lie the nearer to one direction the larger the offset."""
    rows = noise(number, 8)
    return Embeddings(rows + size, rows + 0.05 * noise(2 * number, 8)[number:] + size)


def test_candidates_that_are_nearly_one_direction_are_no_matter_of_temperature():
    """One threshold for `count`, `evaluate`, and the detector `collapse`, and no advice that it takes back."""
    assert (health.NEARLY_ONE, health.CERTAINLY_ALIKE) == (Collapse().similarity, Collapse().certain)
    far, near_ = offset(0.0), offset(20.0)
    unit = torch.nn.functional.normalize(near_.candidate.double())
    expected = ((unit @ unit.T).sum() - 200) / (200 * 199)
    assert health.pairing(near_)["similarity"] == pytest.approx(float(expected), abs=1e-6)
    counted = measures.count(near_, losses.load("ntxent", {"temperature": 5.0}), batch_size=64)
    assert set(findings.kinds_of_directions(counted).values()) == {"alike"}
    for data in (counted, measures.evaluate(near_)):
        (finding,) = (each for each in findings.of(data) if each.kind == "alike")
        assert finding.severity == "stop"
    assert not {each.kind for each in findings.of(counted)} & findings.GRADIENTS.keys()
    assert not health.pairing(far)["alike"]
    assert "alike" not in {each.kind for each in findings.of(measures.count(far, batch_size=64))}
    assert not health.pairing(near_, "euclidean")["alike"]  # distances are those of `far`


@pytest.mark.parametrize("name", ["vicreg", "VICRegLoss", "barlow_twins", "Barlow-Twins", "w_mse", "BYOL", "simsiam"])
def test_a_loss_without_negatives_is_refused_with_the_command_that_helps(plain, name):
    for command in (["count", str(plain), "--loss", name], ["losses", name], ["verify", f"triplet+{name}"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2 and not done.stdout
        assert "cocos evaluate FILE" in done.stderr
    assert f"'{name}'" in done.stderr or name.lower() in done.stderr.lower()
