"""Tables of the built-in losses: all of them, and one with its formula, source and equal losses."""

import xarray as xr

from cocos import losses
from cocos.base import docstrings
from cocos.counting import shares
from cocos.reports.tables import Table

EXACT = "exact: the derivative of the loss, by a closed form"
COUPLES = {
    "query": "no queries: the weights of a query depend on its own row of scores only",
    "batch": "the queries of a batch, which share a term; weights are derivatives of the sum over the batch",
    "candidate": "candidates are the anchors; weights are derivatives of the sum over the batch",
}
NOTES = (
    "One loss in detail, also by its other names: cocos losses InfoNCE.",
    "A loss of your own: --loss package.module:attribute or --loss file.py:attribute. A sum: --loss "
    '"triplet+0.5*contrastive_cosine".',
    "A loss of a library: --loss pml:CircleLoss, open_clip:ClipLoss, lightly:NTXentLoss, "
    "st:MultipleNegativesRankingLoss.",
    'A loss of selected negatives: --loss "top_k(ntxent)" -p k=16; skip_k, semi_hard.',
    "Losses without negatives (vicreg, barlow_twins, w_mse, byol, simsiam): cocos evaluate FILE measures alignment, "
    "uniformity and effective rank.",
)


def table(entries: list[dict], unspecified: dict[str, str], beyond: dict[str, str]) -> Table:
    """List losses, given by `entry`, by family with their parameters; below, why others are not implemented."""
    rows = []
    for loss in sorted(entries, key=lambda loss: (loss["family"], loss["name"])):
        parameters = ", ".join(f"{name}={value}" for name, value in loss["parameters"].items())
        rows.append((loss["name"], loss["family"], parameters or "none"))
    reasons = [f"{name}: unspecified, {reason}" for name, reason in unspecified.items()]
    reasons += [f"{names.split()[0]}: not a function of the scores; {reason}" for names, reason in beyond.items()]
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
    rows = [("formula", loss["formula"])]
    for parameter, value in loss["parameters"].items():
        text = documented.get(parameter) or documented.get(f"{parameter}_", "")
        rows.append(("parameter", f"{parameter} = {value}: {text}"))
    rows.append(("score", f"{loss['metric'].replace('_', ' ')}; batches of {loss['sample']}"))
    rows += [("gradient", shares.about_weights(loss) or EXACT), ("couples", COUPLES[loss["couples"]])]
    texts = ("counts", "net", "family", "source", "also_called")
    rows += [(key.replace("_", " "), loss[key]) for key in texts if loss[key]]
    for other in equal_to(equal):
        rows.append(("equal to", f"{other['loss']}, {other['where']}; the gradients differ by {other['gap']:.1e}"))
    push = curve["push"].values
    score = f"positive at score {curve.attrs['positive_score']:g}"
    rows.append(("push", f"{push[0]:.3g} to {push[-1]:.3g} as one of nine negatives comes closer; {score}"))
    return Table(("", ""), tuple(rows), head=(f"{loss['name']}  ({cls.__name__})", loss["summary"]), left=True)
