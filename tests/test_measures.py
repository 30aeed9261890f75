"""Counting, end to end in Python: Datasets, their sums, saving, tables and pictures."""

import contextlib
import dataclasses
import json
import os

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr

import cases
import cocos
import oracles
import taught
from cocos import Embeddings, InputError, losses, measures, reports, results
from cocos.embeddings import scores
from cocos.embeddings.options import OneBatch, option_names
from cocos.embeddings.sampling import Batch, plan
from cocos.measures.shared import prepared
from cocos.reports import table
from cocos.reports.layouts import latex
from finding_kinds import kinds


def planted(images=40, captions=3, width=8, noise=0.7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(11)
    image = torch.randn(images, width, generator=generator, dtype=dtype)
    group = torch.arange(images).repeat_interleave(captions)
    caption = image[group] + noise * torch.randn(len(group), width, generator=generator, dtype=dtype)
    return Embeddings(image, caption, torch.arange(images), group)


@pytest.fixture(scope="module")
def embeddings():
    return planted()


def test_a_count_is_what_a_loop_over_queries_finds(embeddings):
    data = measures.count(embeddings, "ntxent", batch_size=16, seed=5)
    loss = losses.load("ntxent")
    for b, batch in enumerate(plan(embeddings, batch_size=16, seed=5).batches):
        for direction, side, drawn in (("q2c", embeddings, batch), ("c2q", embeddings.flip(), batch.flip())):
            pairs = scores.pairs(side, drawn)
            share = cocos.weights.autograd(loss, pairs).abs() * loss.temperature
            for q in range(len(pairs.scores)):
                slow = sum(
                    bool(pairs.negative[q, c]) and share[q, c].item() > 0.01 for c in range(pairs.scores.shape[1])
                )
                cell = data.sel(direction=direction).isel(batch=b, query=q)
                assert cell["contributing"].item() == slow
                assert cell["query_index"].item() == drawn.query_index[q].item()
                assert cell["negatives"].item() == pairs.negative[q].sum().item()


def test_the_numbers_of_a_batch_are_made_of_those_of_its_queries(embeddings):
    data = measures.count(embeddings, "triplet", batch_size=16)
    for direction in data["direction"].values:
        for b in data["batch"].values:
            one = data.sel(direction=direction, batch=b)
            counted = one["contributing"].values[np.isfinite(one["contributing"].values)]
            assert one["queries"].item() == len(counted)
            assert one["contributing_sum"].item() == counted.sum()
            assert one["idle"].item() == (counted == 0).sum()
            assert one["contributing_all"].item() == pytest.approx(counted.mean())
            assert one["contributing_mean"].item() == pytest.approx(counted[counted > 0].mean())


def test_one_batch_of_everything_is_the_whole_matrix(embeddings):
    data = measures.count(embeddings, "smoothap", batch_size=1000)
    assert data.sizes["batch"] == 1 and data.attrs["batch_size"] == 40
    pairs = scores.pairs(embeddings)
    loss = losses.load("smoothap")
    expected = cocos.statistics.per_query(loss.weight(pairs), loss.unit(pairs), pairs)["contributing"]
    order = data["query_index"].sel(direction="q2c", batch=0).values[:40].astype(int)
    np.testing.assert_array_equal(data["contributing"].sel(direction="q2c", batch=0).values[:40], expected[order])


@pytest.mark.parametrize("name", cases.KINDS)
def test_blocks_of_queries_change_nothing(embeddings, monkeypatch, name):
    embeddings = taught.embeddings(embeddings, name)
    whole = measures.count(embeddings, name, batch_size=64)
    monkeypatch.setattr(prepared, "BLOCK_SCORES", 1000)  # 15 queries at a time, and 4 in the end
    blocks = measures.count(embeddings, name, batch_size=64)
    np.testing.assert_array_equal(blocks["contributing"], whole["contributing"])
    xr.testing.assert_allclose(blocks, whole, rtol=1e-9)


VISITED = ("ntxent", "triplet", "triplet_sh", "ce_softmax", "supcon", "triplet_squared", "siglip")


@pytest.mark.parametrize("name", VISITED)
@pytest.mark.parametrize("options", [{"sample": "groups"}, {"sample": "pairs"}, {"same_group": "negative"}])
def test_scores_that_are_visited_give_what_scores_that_are_held_give(embeddings, monkeypatch, name, options):
    held = measures.count(embeddings, name, batch_size=30, n90=True, **options).drop_vars(["n90", "n90_per_query"])
    visited = measures.count(embeddings, name, batch_size=30, **options)
    assert (held.attrs["dtype"], visited.attrs["dtype"]) == ("float64", "float32")
    monkeypatch.setattr(prepared, "STACK_ROWS", 100)
    stacks = measures.count(embeddings, name, batch_size=30, **options)
    np.testing.assert_array_equal(stacks["contributing"], visited["contributing"])
    xr.testing.assert_allclose(stacks, visited, rtol=1e-5, atol=1e-6)
    assert (visited["uncertain"].fillna(0) == 0).all()
    np.testing.assert_array_equal(visited["contributing"], held["contributing"])
    np.testing.assert_array_equal(visited["relative_per_query"], held["relative_per_query"])
    np.testing.assert_array_equal(visited["query_index"], held["query_index"])
    for key in set(held.data_vars) - {"contributing", "query_index"}:
        mine, its = visited[key].values, held[key].values
        if name == "ce_nm" and "query" in held[key].dims:  # one image asks twice: either of two equal pairs may be kept
            mine, its = np.sort(mine), np.sort(its)
        np.testing.assert_allclose(mine, its, rtol=2e-4, atol=1e-4, err_msg=key)


def test_all_is_the_whole_set_and_what_cannot_be_visited_is_held_or_refused(embeddings, monkeypatch):
    every = measures.count(embeddings, "ntxent", batch_size="all")
    assert every.sizes["batch"] == 1 and "above" not in every.attrs["notes"]
    xr.testing.assert_identical(every, measures.count(embeddings, "ntxent", batch_size=len(embeddings.candidate)))
    held = measures.count(embeddings, "multi_similarity", batch_size="all")
    assert held.attrs["dtype"] == "float64" and not held["effective"].isnull().any()
    monkeypatch.setattr(prepared, "WEIGHING_ARRAYS", 10**9)
    with pytest.raises(InputError, match="proxy_anchor couples the queries of a batch, so its .* scores must be held"):
        measures.count(embeddings, "proxy_anchor", batch_size="all")


@pytest.mark.parametrize("convention", ["standard", "ecir2022"])
def test_n90_is_a_request(embeddings, convention):
    """Nothing is sorted without it, and it changes no count."""
    options = {"batch_size": 30, "convention": convention}
    plain = measures.count(embeddings, "ntxent", **options)
    assert "n90" not in plain and "n90_per_query" not in plain
    assert {entry["n90"] for entry in reports.document("count", plain)["directions"].values()} == {None}
    assert "with 90 %" not in str(table("count", plain)) and "NaN" not in latex(plain, "file")
    asked = measures.count(embeddings, "ntxent", n90=True, **options)
    np.testing.assert_array_equal(asked["contributing"], plain["contributing"])
    xr.testing.assert_allclose(asked.drop_vars(["n90", "n90_per_query"]), plain, rtol=1e-5, atol=1e-6)
    entry = reports.document("count", asked)["directions"]["c2q"]["n90"]
    copies = "keep" if convention == "ecir2022" else "once"
    pairs = scores.pairs(embeddings.flip(), plan(embeddings, batch_size=30, copies=copies).batches[0].flip())
    pairs = dataclasses.replace(pairs, negative=~pairs.positive) if convention == "ecir2022" else pairs
    right = oracles.n90(losses.load("ntxent").weight(pairs), pairs)
    assert asked["n90_per_query"].sel(direction="c2q", batch=0).values.tolist() == right
    assert entry["mean"] > 1 and "with 90 %" in str(table("count", asked))


@pytest.mark.parametrize("n90", [False, True])
@pytest.mark.parametrize("options", [{"sample": "groups", "batch_size": "all"}, {"batch_size": 16}])
def test_metrics_beside_counts_are_those_of_evaluate(embeddings, n90, options):
    data = measures.count(embeddings, "ntxent", metrics=True, n90=n90, **options)
    right = measures.evaluate(embeddings).sel(distractors="without").isel(fold=0)
    for name in ("R@1", "R@5", "mAP", "mAP@R", "median_rank", "MRR"):
        np.testing.assert_allclose(data[name], right[name], rtol=1e-12)
    assert data["rsum"].item() == pytest.approx(right["rsum"].item())
    assert data["PR-AUC"].item() == pytest.approx(right["PR-AUC"].item())
    summary = reports.document("count", data)["metrics"]
    assert summary["directions"]["c2q"]["R@1"] == data["R@1"].sel(direction="c2q").item()
    assert "metrics" not in reports.document("count", measures.count(embeddings, "ntxent", **options))


def test_a_seed_means_the_same_numbers(embeddings):
    first, again, other = (measures.count(embeddings, "ntxent", batch_size=16, seed=s) for s in (1, 1, 2))
    assert first.identical(again)
    assert not first["contributing"].equals(other["contributing"])


def test_the_flipped_set_has_the_same_counts(embeddings):
    batches = plan(embeddings, batch_size=16).batches
    straight = measures.count(embeddings, "ntxent", batches=batches)
    flipped = measures.count(embeddings.flip(), "ntxent", batches=[b.flip() for b in batches])
    assert flipped["direction"].values.tolist() == ["c2q", "q2c"]
    for direction in ("q2c", "c2q"):
        np.testing.assert_array_equal(
            flipped["contributing"].sel(direction=direction),
            straight["contributing"].sel(direction=direction),
        )


def test_a_batch_without_an_active_query_is_reported_and_not_averaged():
    eye = torch.eye(8, dtype=torch.float64)
    tight = Embeddings(torch.cat([eye, eye[:4]]), torch.cat([eye, eye[[1, 0, 3, 2]]]))
    batches = [Batch(rows, rows, paired=True) for rows in (torch.arange(8), torch.arange(8, 12))]
    data = measures.count(tight, "triplet", batches=batches)
    entry = reports.document("count", data)["directions"]["q2c"]
    assert entry["batches_without_active_queries"] == 1
    # the first batch is perfect; in the second every positive scores 0, so all three negatives are within the margin
    assert entry["contributing_mean"] == {"mean": 3.0, "std": None}
    assert (entry["idle"]["mean"], entry["batch_queries"]) == (8, 8)  # the batch of four is no full one
    idle = measures.count(tight, "triplet", batches=batches[:1])
    summary = reports.document("count", idle)
    assert summary["batches_without_active_queries"] == 1
    assert summary["directions"]["c2q"]["contributing_mean"] == {"mean": None, "std": None}
    assert "NaN" not in json.dumps(summary, allow_nan=False)


def test_conventions_differ_where_they_are_said_to(embeddings):
    options = {"batch_size": 16, "same_group": "ignore", "copies": "keep"}
    with pytest.raises(InputError, match=r"batches of groups \(--sample groups\) only"):
        measures.count(embeddings, "smoothap", sample="pairs", convention="ecir2022")
    for name, changed in (("triplet", {"c2q"}), ("triplet_sh", set()), ("ntxent", set())):
        standard, published = (
            measures.count(embeddings, name, convention=c, **options) for c in ("standard", "ecir2022")
        )
        for direction in ("q2c", "c2q"):
            same = (
                standard["contributing"]
                .sel(direction=direction)
                .equals(published["contributing"].sel(direction=direction))
            )
            assert same == (direction not in changed)
        np.testing.assert_array_equal(standard["contributing_sum"], published["contributing_sum"])
    assert measures.count(embeddings, "ntxent", convention="ecir2022").attrs["same_group"] == "negative"


@pytest.mark.parametrize("name", cases.KINDS)
def test_labelled_sets_and_proxies_have_one_direction(name):
    generator = torch.Generator().manual_seed(0)
    samples, labels = torch.randn(60, 5, generator=generator), torch.arange(60) % 6
    for embeddings, direction in (
        (Embeddings.labelled(samples, labels), "s2s"),
        (Embeddings.labelled(samples, labels, proxies=samples[:6]), "s2p"),
    ):
        data = measures.count(taught.embeddings(embeddings, name), name, batch_size=24)
        assert data["direction"].values.tolist() == [direction]
        assert data["contributing"].sum() > 0


@pytest.mark.parametrize(("name", "grid"), [("ntxent", [0.0, 1e-4, 0.01, 0.2]), ("triplet", [0.0, 1.0, 3.0])])
def test_a_curve_is_the_count_at_every_eps(embeddings, name, grid):
    """Shares of the triplet loss are whole numbers: there every eps of the grid lies exactly on some of them."""
    curve = measures.eps_curve(embeddings, name, grid, sample="groups", batch_size=16)
    for eps in grid:
        data = measures.count(embeddings, name, eps, sample="groups", batch_size=16)
        for direction in ("q2c", "c2q"):
            point, counted = curve.sel(eps=eps, direction=direction), data["contributing"].sel(direction=direction)
            assert point["contributing_all"].item() == pytest.approx(counted.mean().item())
            assert point["idle_fraction"].item() == pytest.approx((counted == 0).sum().item() / counted.count().item())


def test_a_curve_wants_ascending_thresholds(embeddings):
    with pytest.raises(InputError, match="in ascending order"):
        measures.eps_curve(embeddings, "ntxent", [0.1, 0.01])


def test_float32_counts_are_said_to_be_uncertain(embeddings):
    single = measures.count(embeddings, "multi_similarity", sample="pairs", batch_size=50, dtype="float32")
    assert "float32" in kinds(single)
    for loss in ("ntxent", "multi_similarity"):
        assert measures.count(embeddings, loss, sample="pairs", batch_size=50).attrs["notes"] == ""


def test_progress_is_told(embeddings, monkeypatch):
    seen = []

    def progress(what):
        return lambda *numbers: seen.append((what, *numbers))

    measures.count(embeddings, "multi_similarity", sample="pairs", batch_size=50, progress=progress)
    assert seen == [("counting", 1, 3), ("counting", 2, 3), ("counting", 3, 3)]
    for rows in (2**17, 50):  # in one stack, in three
        monkeypatch.setattr(prepared, "STACK_ROWS", rows)
        seen.clear()
        measures.count(embeddings, batch_size=50, progress=progress)
        parts = [done / every for _, done, every in seen]
        assert parts == sorted(parts) and parts[-1] == 1 and len(parts) >= (1 if rows == 2**17 else 3)


def test_a_dataset_is_saved_whole_and_opened_again(embeddings, tmp_path):
    data = measures.count(embeddings, "ntxent", batch_size=16)
    path = results.save(data, tmp_path / "count.nc")
    assert results.open(path).identical(data)
    first = path.read_bytes()
    assert results.save(data, path).read_bytes() == first
    assert os.listdir(tmp_path) == ["count.nc"]
    assert {"loss_repr", "eps", "seed", "cocos", "torch"} <= data.attrs.keys()
    assert all("long_name" in v.attrs and "units" in v.attrs for v in data.data_vars.values())


def test_outputs_that_cannot_be_written_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path, sentence in (
        (tmp_path / "a.csv", "suffix '.csv', expected .nc"),
        (tmp_path / "no" / "a.nc", "there is no folder"),
        (tmp_path / "file" / "a.nc", "there is no folder"),
    ):
        with pytest.raises(InputError, match=sentence):
            results.save(xr.Dataset(), path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eps": -0.1}, "eps: -0.1, expected a share"),
        ({"eps": float("nan")}, "eps: nan"),
        ({"convention": "ecir"}, "convention: 'ecir', expected one of standard, ecir2022"),
        ({"dtype": "float16"}, "dtype: 'float16', expected one of float32, float64"),
        ({"loss": losses.load("ntxent", {"temperature": 1e-320})}, "its weights leave the range of float64"),
        ({"loss": losses.load("multi_similarity", {"alpha": 1e39}), "dtype": "float32"}, "the range of float32"),
        ({"batches": []}, "batches: none were given"),
        ({"eps": "0.01"}, "eps: '0.01', expected a share"),
        ({"loss": "tripplet"}, "did you mean 'triplet'"),
        ({"same_group": "drop"}, "same group: 'drop'"),
    ],
)
def test_bad_options_get_a_sentence(embeddings, options, sentence):
    with pytest.raises(InputError) as error:
        measures.count(embeddings, **options)
    assert sentence in str(error.value)


@pytest.mark.parametrize("name", losses.names())
def test_an_extreme_scale_is_counted_or_one_sentence(name, embeddings):
    """Exponents within the range of float32 are counted, others refused; nothing else is raised."""
    given = {"scale": 1e38} if "scale" in losses.parameter_names(name) else {"temperature": 1e-38}
    if not given.keys() & losses.parameter_names(name):
        pytest.skip("no scale")
    with contextlib.suppress(InputError):
        measures.count(embeddings, losses.load(name, given))


def test_only_embeddings_are_counted():
    with pytest.raises(InputError, match="embeddings: str, expected cocos.Embeddings or a checkpoint"):
        measures.count("embeddings.npz")


def test_latex_has_the_columns_of_the_published_tables(embeddings):
    for name, symbols in (
        ("triplet", "$C^{A}$ & $C^{B}$ & $C^{0}$"),
        ("ntxent", "$C^{qv-}$ & $W^{qv-}$ & $W^{qv+}$"),
        ("smoothap", "$C^{q}$ & $C^{0}$"),
    ):
        text = latex(measures.count(embeddings, name, batch_size=16), "my_model 100%")
        assert "sha256 unknown" in text  # these embeddings are of no file
        assert f"{symbols} & {symbols}" in text
        assert r"my\_model 100\% & $" in text
        assert text.count(r"\pm") == 2 * (symbols.count("&") + 1)


def test_a_device_that_is_not_there_is_named():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for name in ("cuda", "cuda:1", "tpu"):
        with pytest.raises(InputError, match=f"device: '{name}', expected auto or one of cpu on this machine"):
            cocos.checkpoints.encoding.device_of(name)
    assert cocos.checkpoints.encoding.device_of("auto").type == "cpu"


def test_unknown_options_of_measures_are_refused(embeddings):
    for name in ("count", "decomposition", "eps_curve", "lorenz", "temperature_curve", "weight_map", "contributors"):
        measure = getattr(measures, name)
        with pytest.raises(InputError, match=f"option of {name} 'batchsize': did you mean 'batch_size'"):
            measure(embeddings, "ntxent", batchsize=3)
        assert set(option_names(measure)) >= OneBatch.__annotations__.keys()
    with pytest.raises(InputError, match="option of weight_map 'batches'"):
        measures.weight_map(embeddings, "ntxent", batches=2)
    with pytest.raises(InputError, match="option of temperature 'batch_size'"):
        measures.temperature(embeddings, "ntxent", batch_size=16)


def test_measures_have_their_own_defaults(embeddings):
    sizes = {name: getattr(measures, name)(embeddings, "ntxent").attrs for name in ("weight_map", "count", "lorenz")}
    assert {name: attrs["batch_size"] for name, attrs in sizes.items()} == {
        "weight_map": 48,
        "count": 120,
        "lorenz": 120,
    }
    assert {name: attrs["dtype"] for name, attrs in sizes.items()} == {
        **{"weight_map": "float64", "count": "float32", "lorenz": "float64"}
    }


@pytest.mark.parametrize(
    ("loss", "eps", "options", "refused"),
    [
        *(("ntxent", 2, {}, True), ("ntxent", 1, {}, True), ("ntxent", 0.5, {}, False), ("triplet", 2, {}, False)),
        *(("ntxent", 2, {"convention": "ecir2022"}, False), ("siglip", 5, {}, True), ("circle", 2, {}, False)),
    ],
)
def test_an_eps_that_no_share_exceeds_is_refused(embeddings, loss, eps, options, refused):
    """Published shares are sums over the positives of a query, and violations are counted: both may exceed 1."""
    given = {"eps": eps, "batch_size": 16, "batches": 1} | options
    if not refused:
        assert measures.count(embeddings, loss, **given).attrs["eps"] == eps
        return
    with pytest.raises(InputError, match=f"eps: {eps}, expected less than 1.*{eps} % is eps {eps / 100:g}"):
        measures.count(embeddings, loss, **given)


@pytest.mark.parametrize(
    ("name", "size"), [*((name, 32) for name in cases.KINDS), *((name, "all") for name in VISITED)]
)
def test_the_document_has_no_number_missing_but_what_was_not_asked_for(embeddings, name, size):
    """`null` is for n90; 0 pushed positives are 0, for a sigmoid too."""
    found = reports.document("count", measures.count(taught.embeddings(embeddings, name), name, batch_size=size))
    for entry in found["directions"].values():
        assert [key for key, value in entry.items() if value is None] == ["n90"]


def test_show_prints_verdict_and_numbers(embeddings, capsys):
    for loss in ("ntxent", ["ntxent", "triplet"]):
        cocos.show(measures.count(embeddings, loss, batch_size=16))
        assert "q2c" in capsys.readouterr().out
