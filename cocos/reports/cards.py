"""Tables of the built-in losses: all of them, and one with its formula, source and equal losses."""

import xarray as xr

from cocos import losses
from cocos.base import docstrings
from cocos.reports import contents
from cocos.reports.tables import Step, Table

NOTES = (
    "One loss in detail, also by its other names: cocos losses InfoNCE.",
    "A loss of your own: --loss package.module:attribute or --loss file.py:attribute. A sum: --loss "
    '"triplet+0.5*contrastive_cosine".',
    "A loss of a library: --loss pml:CircleLoss, open_clip:ClipLoss, lightly:NTXentLoss, "
    "st:MultipleNegativesRankingLoss.",
    'A loss of selected negatives: --loss "top_k(ntxent)" -p k=16; skip_k, semi_hard.',
)


def table(entries: list[dict], uncountable: dict[str, str]) -> Table:
    """List losses, given by `entry`, by family with their parameters; below, why others are not implemented."""
    rows = []
    for loss in sorted(entries, key=lambda loss: (loss["family"], loss["name"])):
        parameters = ", ".join(f"{name}={value}" for name, value in loss["parameters"].items())
        rows.append((loss["name"], loss["family"], parameters or "none"))
    reasons = [f"{name}: {reason}" for name, reason in uncountable.items()]
    head = (f"{len(rows)} losses with the default parameters of their papers",)
    return Table(("loss", "family", "parameters"), tuple(rows), head, (*reasons, *NOTES), left=True)


def entry(name: str) -> dict:
    """Describe a loss as plain data: name, parameters, properties, formula and source."""
    loss = losses.load(name)
    sections = docstrings.sections(type(loss))
    texts = {key.lower(): sections.get(key, "") for key in ("Counts", "Net", "Source")}
    return {
        "name": loss.name,
        "parameters": loss.parameters,
        "metric": loss.metric,
        "couples": loss.couples,
        "gradient": loss.gradient,
        "balanced": loss.balanced,
        "sample": loss.sample,
        "family": loss.family,
        "summary": docstrings.summary(type(loss)),
        "formula": docstrings.formula(type(loss)),
        **texts,
        "also_called": ", ".join(alias(*item) for item in loss.aliases.items()),
    }


def alias(name: str, implied: dict) -> str:
    """Return an alias with the parameters that it implies."""
    return name + (f" ({', '.join(f'{key}={value}' for key, value in implied.items())})" if implied else "")


def equal_to(equal: xr.Dataset) -> list[dict]:
    """Convert the Dataset of `cocos.measures.equivalences` to plain data."""
    columns = (equal[key].values.tolist() for key in ("other", "where", "gap"))
    return [{"loss": loss, "where": where, "gap": gap} for loss, where, gap in zip(*columns, strict=True)]


def card(name: str, curve: xr.Dataset, equal: xr.Dataset) -> Table:
    """Return the table of one loss; `curve` is its Dataset of `cocos.measures.weight_curve`."""
    loss, cls = entry(name), type(losses.load(name))
    documented = docstrings.parameters(cls)
    loss["parameters"] = {
        parameter: f"{value}: {documented.get(parameter) or documented.get(f'{parameter}_', '')}"
        for parameter, value in loss["parameters"].items()
    }
    push = curve["push"].values
    loss["push"] = f"{push[0]:.3g} to {push[-1]:.3g} as one of nine negatives comes closer"
    loss["equal_to"] = [f"{other['loss']}, {other['where']} ({other['gap']:.1e})" for other in equal_to(equal)]
    head = (f"{loss.pop('name')}  ({cls.__name__})", loss.pop("summary"))
    typed = Step("count", ("example",), {"loss": name})
    return Table(("", ""), tuple(contents.lines(loss)), head, left=True, typed=(typed,))
