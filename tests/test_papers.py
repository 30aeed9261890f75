"""Golden data of the published counters (tests/data/README.md), for both conventions."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cocos import Embeddings, Pairs, losses, measures
from cocos.counting import conventions, statistics, weights
from cocos.embeddings import similarities
from cocos.embeddings.sampling import Batch
from cocos.losses.smoothap import SmoothAP

PATH = Path(__file__).parent / "data" / "ecir2022.npz"
MEAN = 1e-6  # relative: the published counters divide in float32
CONVENTIONS = conventions.CONVENTIONS


@cache
def golden():
    with np.load(PATH, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def cases(family, *, prefix=""):
    found = {name.split("/")[1] for name in golden() if name.startswith(f"{family}/{prefix}")}
    return sorted(found)


def case(family, name):
    start = f"{family}/{name}/"
    return {key.removeprefix(start): value for key, value in golden().items() if key.startswith(start)}


TRIPLETS = [("triplet", name) for name in cases("triplet")] + [
    ("edge", name) for name in cases("edge", prefix="triplet")
]
NTXENTS = [("ntxent", name) for name in cases("ntxent")] + [("edge", name) for name in cases("edge", prefix="ntxent")]
SMOOTHAPS = [("smoothap", name) for name in cases("smoothap")] + [
    ("edge", name) for name in cases("edge", prefix="smoothap")
]


def score_matrix(data):
    """Published scores: an inner product, or the order-embedding score, which is stored."""
    if "in/scores" in data:
        return torch.from_numpy(data["in/scores"])
    if data.get("in/measure_order", 0):
        return torch.from_numpy(data["ref/scores"])
    return similarities.dot(torch.from_numpy(data["in/images"]), torch.from_numpy(data["in/captions"]))


def both_sides(matrix, positive):
    """Pairs of image queries and of caption queries."""
    return Pairs(matrix, positive), Pairs(matrix.T.contiguous(), positive.T.contiguous())


def counted(loss, pairs, convention, *, second, eps):
    """Statistics of one direction of one batch, as `measures.count` makes them."""
    weight, unit = loss.weight(pairs), loss.unit(pairs)
    found = statistics.per_query(weight, unit, pairs, eps)
    if convention == "ecir2022":
        found = conventions.as_published(loss, pairs, weight.abs() / unit, found, second=second, eps=eps)
    return found


def over_active(values):
    active = values[values > 0].double()
    return active.mean().item() if len(active) else float("nan")


def same(actual, expected):
    assert actual == pytest.approx(float(expected), rel=MEAN, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize(("family", "name"), TRIPLETS)
def test_triplet(family, name, convention):
    data = case(family, name)
    matrix = score_matrix(data)
    kind = "triplet_sh" if data["in/max_violation"] else "triplet"
    loss = losses.load(kind, {"margin": float(data["in/margin"])})
    sides = both_sides(matrix, torch.eye(len(matrix), dtype=torch.bool))
    for direction, pairs, second in zip(("i2t", "t2i"), sides, (False, True), strict=True):
        found = counted(loss, pairs, convention, second=second, eps=0.01)["contributing"]
        if convention == "standard":
            assert found.tolist() == data[f"cor/count_{direction}"].tolist()
            same(over_active(found), data[f"cor/{direction}_CA"])
            same(found.sum(), data[f"cor/{direction}_CB"])
            same((found == 0).sum(), data[f"cor/{direction}_C0"])
            same(found.double().mean(), data[f"cor/{direction}_mean_all"])
            contributes = (loss.weight(pairs) != 0) & pairs.negative
            if f"cor/contrib_{direction}" in data:
                assert contributes.tolist() == data[f"cor/contrib_{direction}"].astype(bool).tolist()
        else:
            same(over_active(found), data[f"ref/{direction}_grads_mean"])
            same(found.sum(), data["ref/i2t_grads_sum" if direction == "i2t" else "ref/t2i_grad_sum"])
            same((found == 0).sum(), data[f"ref/zeros_{direction}"])
    same(sum(loss(pairs).sum() for pairs in sides), data["ref/loss"])
    if convention == "standard" and "cor/grad_scores" in data and "tie_at_margin" not in name:
        both = loss.weight(sides[0]) + loss.weight(sides[1]).T
        assert torch.equal(both, torch.from_numpy(data["cor/grad_scores"]).double())


def test_a_tie_at_the_margin_contributes_neither_to_the_count_nor_to_the_gradient():
    """The published loss uses clamp, which lets a gradient of 1 through at the tie; ours is relu, which does not."""
    data = case("edge", "triplet_tie_at_margin_all")
    pairs, _ = both_sides(score_matrix(data), torch.eye(2, dtype=torch.bool))
    loss = losses.load("triplet", {"margin": 0.25})
    assert not loss.weight(pairs).any()
    assert not weights.autograd(loss, pairs).any()
    assert data["ref/grad_scores"].any()


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize(("family", "name"), NTXENTS)
def test_ntxent(family, name, convention):
    data = case(family, name)
    eps, matrix = float(data["in/threshold"]), score_matrix(data)
    loss = losses.load("ntxent", {"temperature": float(data["in/tau"])})
    sides = both_sides(matrix, torch.eye(len(matrix), dtype=torch.bool))
    for direction, pairs, second in zip(("i2t", "t2i"), sides, (False, True), strict=True):
        found = counted(loss, pairs, convention, second=second, eps=eps)
        if convention == "standard" and f"cor/count_{direction}" in data:
            assert found["contributing"].tolist() == data[f"cor/count_{direction}"].tolist()
            np.testing.assert_allclose(found["weight_above"], data[f"cor/wneg_high_{direction}"], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found["weight_positive"], data[f"cor/wpos_{direction}"], rtol=1e-9, atol=1e-12)
            everything = found["weight_above"] + found["weight_below"]
            np.testing.assert_allclose(everything, data[f"cor/wneg_all_{direction}"], rtol=1e-9, atol=1e-12)
            for key, value in (
                ("CA", over_active(found["contributing"])),
                ("CB", found["contributing"].sum()),
            ):
                if f"cor/{direction}_{key}" in data:
                    same(value, data[f"cor/{direction}_{key}"])
        if convention == "ecir2022":
            same(found["contributing"].double().mean(), data[f"ref/{direction}_n_high_grad"])
            same(found["weight_above"].mean(), data[f"ref/{direction}_high_grad"])
            same(found["weight_below"].mean(), data[f"ref/{direction}_low_grad"])
            same(found["weight_positive"].mean(), data[f"ref/1-s_{direction}.diag.mean"])
    if "ref/loss" in data:
        same(sum(loss(pairs).mean() for pairs in sides) / 2, data["ref/loss"])
    if "ref/grad_scores" in data:
        both = loss.weight(sides[0]) / len(matrix) + loss.weight(sides[1]).T / len(matrix)
        np.testing.assert_allclose(both / 2, data["ref/grad_scores"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize(("family", "name"), SMOOTHAPS)
def test_smoothap(family, name, convention):
    data = case(family, name)
    eps, tau, captions = float(data["in/threshold"]), float(data["in/tau"]), int(data["in/n_captions"])
    ranked, matrix = bool(data["in/use_rankings"]), score_matrix(data)
    loss = losses.load("smoothap", {"temperature": tau})
    images = torch.arange(len(matrix))
    sides = both_sides(matrix, images[:, None] == images.repeat_interleave(captions)[None, :])
    for direction, pairs, second in zip(("i2t", "t2i"), sides, (False, True), strict=True):
        if convention == "standard":
            found = SmoothAP(tau).eq7(pairs, eps, ranked=ranked)
            terms = (found * pairs.positive.sum(dim=1)).round()
            np.testing.assert_allclose(found, data[f"cor/count_{direction}"], rtol=1e-12)
            expected = data[f"cor/count_neg_{direction}"] + data[f"cor/count_pos_{direction}"]
            assert terms.tolist() == expected.tolist()
            with_inverse = SmoothAP(tau).eq7(pairs, eps * tau) * pairs.positive.sum(dim=1)
            expected = data[f"cor/count_neg_with_inv_tau_{direction}"] + data[f"cor/count_pos_with_inv_tau_{direction}"]
            assert with_inverse.round().tolist() == expected.tolist()
            same(over_active(found), data[f"cor/{direction}_CA"])
            same(found.sum(), data[f"cor/{direction}_CB"])
            same((found == 0).sum(), data[f"cor/{direction}_C0"])
        else:
            found = conventions.eq7(pairs, tau, eps, second=second, ranked=ranked)
            published = over_active(found)
            same(0 if np.isnan(published) else published, data[f"ref/sum_{direction}"])
            same((found == 0).sum(), data[f"ref/zeros_{direction}"])
        if f"ref/grad_scores_{direction}" in data:
            np.testing.assert_allclose(
                loss.weight(pairs) / len(pairs.scores),
                data[f"ref/grad_scores_{direction}"],
                rtol=0,
                atol=1e-9,
            )
    same(sum(loss(pairs).mean() for pairs in sides) / 2, data["ref/loss"])


PROTOCOL = {
    "i2t_grads_mean": ("i2t", "contributing_mean"),
    "i2t_grads_sum": ("i2t", "contributing_sum"),
    "zeros_i2t": ("i2t", "idle"),
    "t2i_grads_mean": ("t2i", "contributing_mean"),
    "t2i_grad_sum": ("t2i", "contributing_sum"),
    "zeros_t2i": ("t2i", "idle"),
    "1-s_i2t.diag.mean": ("i2t", "weight_positive"),
    "1-s_t2i.diag.mean": ("t2i", "weight_positive"),
    "i2t_low_grad": ("i2t", "weight_below"),
    "i2t_high_grad": ("i2t", "weight_above"),
    "i2t_n_high_grad": ("i2t", "contributing_all"),
    "t2i_low_grad": ("t2i", "weight_below"),
    "t2i_high_grad": ("t2i", "weight_above"),
    "t2i_n_high_grad": ("t2i", "contributing_all"),
    "sum_i2t": ("i2t", "eq7_mean"),
    "sum_t2i": ("t2i", "eq7_mean"),
}
CORRECT = {
    "CA": "contributing_mean",
    "CB": "contributing_sum",
    "C0": "idle",
    "mean_all": "contributing_all",
    "count": "contributing_all",
    "wneg_high": "weight_above",
    "wpos": "weight_positive",
}
EQ7 = {"CA": "eq7_mean", "CB": "eq7_sum", "C0": "eq7_idle"}


def run_of(name):
    """Embeddings, loss and the published batches of one counting pass."""
    data = case("protocol", name)
    images, captions = torch.from_numpy(data["in/images"]), torch.from_numpy(data["in/captions"])
    each = len(captions) // len(images)
    groups = torch.arange(len(images)), torch.arange(len(images)).repeat_interleave(each)
    embeddings = Embeddings(images, captions, *groups, directions=("i2t", "t2i"))
    parameters = {"margin": "in/margin"} if "triplet" in name else {"temperature": "in/tau"}
    kind = {"triplet_all": "triplet"}.get(name, name)
    loss = losses.load(kind, {key: float(data[field]) for key, field in parameters.items()})
    batches = []
    for rows in torch.from_numpy(data["in/order"]).split(int(data["in/batch_size"])):
        if name == "smoothap":
            candidates = (each * rows[:, None] + torch.arange(each)).flatten()
            batches.append(Batch(rows, candidates, paired=False))
        else:
            batches.append(Batch(rows // each, rows, paired=True))
    return data, embeddings, loss, batches


@pytest.mark.parametrize("name", cases("protocol"))
def test_the_published_pass_is_reproduced(name):
    data, embeddings, loss, batches = run_of(name)
    counted = measures.count(embeddings, loss, batches=batches, convention="ecir2022")
    known = PROTOCOL | ({f"zeros_{d}": (d, "eq7_idle") for d in ("i2t", "t2i")} if name == "smoothap" else {})
    for place, column in enumerate(data["ref/names"].tolist()):
        direction, key = known[column]
        values = counted[key].sel(direction=direction).values
        np.testing.assert_allclose(values, data["ref/per_batch"][:, place], rtol=MEAN, atol=1e-7, err_msg=column)
        same(values.mean(), data["ref/mean"][place])
        same(values.std(), data["ref/std"][place])
    assert (
        counted["same_group_pairs"].values.tolist() == data.get("cor/same_image_pairs", np.zeros(len(batches))).tolist()
    )


RIGHT = [
    (name, rule, table)
    for name in cases("protocol")
    for rule, table in (("negative", "cor/per_batch"), ("ignore", "cor/per_batch_excluding_same_image"))
    if table in case("protocol", name)  # the second one is there for Triplet only
]


@pytest.mark.parametrize(("name", "same_group", "table"), RIGHT)
def test_the_right_pass_is_reproduced(name, same_group, table):
    data, embeddings, loss, batches = run_of(name)
    counted = measures.count(embeddings, loss, batches=batches, same_group=same_group, dtype="float64")
    single = measures.count(embeddings, loss, batches=batches, same_group=same_group)
    for place, column in enumerate(data["cor/names"].tolist()):
        direction, _, quantity = column.partition("_")
        key = (EQ7 if name == "smoothap" else CORRECT).get(quantity)
        if key:
            values = counted[key].sel(direction=direction).values
            np.testing.assert_allclose(values, data[table][:, place], rtol=1e-9, err_msg=column)
            values = single[key].sel(direction=direction).values
            np.testing.assert_allclose(values, data[table][:, place], rtol=1e-6, err_msg=column)


@pytest.mark.parametrize("name", cases("protocol"))
def test_float32_counts_what_the_published_float32_run_counted(name):
    """Golden embeddings keep every decision 5e-7 away from its threshold: float32 must decide alike."""
    _, embeddings, loss, batches = run_of(name)
    exact = measures.count(embeddings, loss, batches=batches)
    single = measures.count(embeddings, loss, batches=batches, dtype="float32")
    np.testing.assert_array_equal(single["contributing"], exact["contributing"])


def test_the_wrong_axis_shows_where_the_two_conventions_disagree():
    """S = [[.5, 0, 0], [.4, .9, 0], [.4, 0, .9]], margin .2: caption 0 has two violators, the others none."""
    data = case("edge", "triplet_axis_demo_all")
    pairs = both_sides(score_matrix(data), torch.eye(3, dtype=torch.bool))[1]
    loss = losses.load("triplet")
    right = counted(loss, pairs, "standard", second=True, eps=0.01)["contributing"]
    published = counted(loss, pairs, "ecir2022", second=True, eps=0.01)["contributing"]
    assert right.tolist() == [2, 0, 0]
    assert published.tolist() == [0, 1, 1]


def test_idle_queries_of_all_negatives_and_of_the_hardest_are_the_same():
    for name in ("triplet_all", "triplet_sh"):
        _, embeddings, _, batches = run_of(name)
        every = measures.count(embeddings, losses.load("triplet"), batches=batches)
        hardest = measures.count(embeddings, losses.load("triplet_sh"), batches=batches)
        np.testing.assert_array_equal(every["idle"], hardest["idle"])
        np.testing.assert_array_equal(hardest["contributing_sum"], hardest["queries"] - hardest["idle"])


def test_the_published_smoothap_counter_takes_other_images_for_the_positives_of_a_caption():
    """Caption 0 alone has its own image among those that are read, with four others."""
    data = case(*SMOOTHAPS[0])
    captions, images = (data[f"in/{side}"].shape[0] for side in ("captions", "images"))
    read = [range(5 * caption, min(5 * caption + 5, images)) for caption in range(captions)]
    assert [caption for caption in range(captions) if caption // 5 in read[caption]] == [0] and len(read[0]) == 5
    notes = conventions.footnotes(SmoothAP(), "ecir2022", directions=2)
    assert "candidates of other queries" in notes[0] and "its own and four others" in notes[0]


def test_the_slides_name_of_the_hardest_negative_finds_it_with_a_warning():
    assert losses.canonical("semi-hard") == losses.canonical("Semi-Hard loss") == "triplet_sh"
    assert "semi-hard negatives are others" in " ".join(losses.TripletSH.__doc__.split())
