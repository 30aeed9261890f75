"""Do contributing negatives explain recall? Correlate them over training runs: `python -m analysis.hypothesis FILE...`.

Each FILE is the result of one training run: `cocos count --metrics --out`, `cocos count --out` with `cocos evaluate
--out` of the same checkpoint, or `cocos run --out`, of which the last checkpoint is used. A table of runs, such as
analysis/runs/towers.nc, contains several. Source of the question: Bleeker & de Rijke 2022 (arXiv:2202.07474).
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

from cocos import results

FEWEST = 4  # units of a correlation: three are too often in perfect order


def read_runs(paths: list[Path]) -> pd.DataFrame:
    """Return one row per run: loss, contributing negatives per query (mean over directions) and rsum."""
    rows, recall = [], {}
    for path in paths:
        dataset = results.open(path)
        if isinstance(dataset, dict):
            raise SystemExit(f"{path}: {len(dataset)} losses on one model, expected the trained loss")
        if "run" in dataset.dims:
            rows += read_table(dataset)
            continue
        checkpoint = dataset.attrs.get("checkpoint_sha256", str(path)).split("\n")[-1]
        dataset = dataset.isel(checkpoint=-1) if "checkpoint" in dataset.dims else dataset
        if "rsum" in dataset:
            recall[checkpoint] = float(dataset["rsum"].mean())
        if "contributing" in dataset:
            count = dataset["contributing"]
            count = float(count.mean([name for name in count.dims if name != "direction"]).mean())
            rows.append({"loss": dataset.attrs["loss"], "contributing": count, "checkpoint": checkpoint})
    runs = pd.DataFrame(rows, columns=["loss", "contributing", "rsum", "checkpoint"])
    runs["rsum"] = runs["rsum"].astype(float).fillna(runs.pop("checkpoint").map(recall).astype(float))
    if runs["rsum"].isna().any():
        raise SystemExit("rsum: missing for some runs, expected count --metrics or evaluate results of all checkpoints")
    return runs


def read_table(dataset: xr.Dataset) -> list[dict]:
    """Return the rows of a table of runs."""
    count = dataset["contributing_all" if "contributing_all" in dataset else "contributing"]
    count = count.sel(convention="standard") if "convention" in count.dims else count
    count = count.mean([name for name in count.dims if name != "run"]).values
    columns = {"loss": dataset["family"].values.astype(str), "contributing": count, "rsum": dataset["rsum"].values}
    return pd.DataFrame(columns).to_dict("records")


def correlate(count, recall, loss=None, *, resamples: int = 2000, seed: int = 0) -> dict[str, float]:
    """Return Spearman's rho of count and recall with its 95 % bootstrap interval over runs; NaN if one is constant.

    With `loss`, ranks are taken and centred within losses, and runs are resampled within losses. A loss with a constant
    count or recall is left out.
    """
    count, recall, loss = np.asarray(count, float), np.asarray(recall, float), np.asarray(loss)
    groups = [np.flatnonzero(loss == name) for name in np.unique(loss)] if loss.ndim else [np.arange(len(count))]
    groups = [own for own in groups if np.ptp(count[own]) and np.ptp(recall[own])] or groups

    def rho(rows: list[np.ndarray]) -> float:
        ranks = [[stats.rankdata(column[own]) - (len(own) + 1) / 2 for own in rows] for column in (count, recall)]
        one, other = map(np.concatenate, ranks)
        size = np.sqrt((one @ one) * (other @ other))
        return one @ other / size if size else np.nan

    rng = np.random.default_rng(seed)
    values = np.array([rho([rng.choice(own, len(own)) for own in groups]) for _ in range(resamples)])
    values = values[np.isfinite(values)]
    low, high = np.quantile(values, (0.025, 0.975)) if len(values) else (np.nan, np.nan)
    return {"rho": float(rho(groups)), "low": float(low), "high": float(high), "n": sum(map(len, groups))}


def correlations(runs: pd.DataFrame) -> pd.DataFrame:
    """Correlate count and recall over all runs, over the means of the losses, and over runs within losses."""
    rows = {"all runs": correlate(runs["contributing"], runs["rsum"])}
    means = runs.groupby("loss")[["contributing", "rsum"]].mean()
    if len(means) >= FEWEST:
        rows["means of losses"] = correlate(means["contributing"], means["rsum"])
    several = runs[runs.groupby("loss")["loss"].transform("size") > 2]
    if len(means) > 1 and len(several) >= FEWEST:
        rows["within losses"] = correlate(several["contributing"], several["rsum"], several["loss"])
    return pd.DataFrame(rows).T.astype({"n": int})


def draw(runs: pd.DataFrame) -> Figure:
    """Plot recall against the count, a point per run."""
    figure = Figure(figsize=(4.5, 3.2), layout="constrained")
    ax = figure.subplots()
    sns.scatterplot(runs, x="contributing", y="rsum", hue="loss", style="loss", ax=ax)
    ax.set(xlabel="contributing negatives per query", ylabel="rsum (%)")
    sns.despine(ax=ax)
    return figure


def main() -> None:
    """Print the correlations, and draw the runs with --out."""
    parser = argparse.ArgumentParser(prog="python -m analysis.hypothesis", description=__doc__.split(": `")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="results of training runs (.nc)")
    parser.add_argument("--out", type=Path, help="draw the runs to this file (.png, .pdf, .svg)")
    options = parser.parse_args()
    runs = read_runs(options.files)
    if len(runs) < FEWEST:
        parser.error(f"{len(runs)} runs, expected at least {FEWEST}")
    print(correlations(runs).round(2).to_string())
    if options.out:
        draw(runs).savefig(options.out, dpi=150)


if __name__ == "__main__":
    main()
