"""Table of the equilibrium of a learned temperature, a row for each batch size."""

import xarray as xr

from cocos import measures
from cocos.engine.sampling import DEFAULTS
from cocos.measures.temperature import STATES
from cocos.reports import summary
from cocos.reports.layout import Step, Table, following, given


def table(data: xr.Dataset) -> Table:
    """Write where the temperature settles at each batch size, with a sentence on each and a command to go on with."""
    found = measures.document("temperature", data)
    own, bias, wanted = found["own_temperature"], found["own_bias"], found["wanted_effective"]
    columns = ["batch size", "temperature", "95 % interval", "scale", "effective", f"at {own:.4g}", "not first"]
    columns += [] if bias is None else ["bias", f"bias at scale {1 / own:.4g}", f"push/pull at {bias:.4g}"]
    columns += [] if wanted is None else [f"for {wanted:g} effective"]
    rows = [_row(each, bias is not None, wanted is not None) for each in found["batch_sizes"].values()]
    own_size, sizes = _usual(found), found["batch_sizes"].values()
    first = [_sentence(each, found) for each in sizes if each is own_size]
    head = [
        *first,
        *_spans(own_size, found),
        *summary.about(data),
        "dL/dscale = 0 on these embeddings: where a learned temperature settles",
    ]
    notes = [
        f"effective: number of negatives that share the push at the equilibrium, and at {own:.4g}, the loss's own "
        "temperature; not first: queries with a negative that scores as high as a positive",
        *(_sentence(each, found) for each in sizes if each is not own_size),
    ]
    least = ("scale", f"at {own:.4g}")
    return Table(
        tuple(columns), tuple(rows), tuple(head), tuple(notes), least=least, typed=_next(data, found, own_size)
    )


def _usual(found: dict) -> dict:
    """The batch size to speak of first: the largest up to the usual one of `cocos count`, else the first."""
    sizes = list(found["batch_sizes"].values())
    small = [each for each in sizes if each["batch_size"] <= DEFAULTS["batch_size"]]
    return max(small, key=lambda each: each["batch_size"]) if small else sizes[0]


def _number(value: float | None, digits: int = 4) -> str:
    return "none" if value is None else f"{value:.{digits}g}"


def _row(each: dict, biased: bool, wanted: bool) -> tuple[str, ...]:
    """Cells of one batch size."""
    sides = each["directions"].values()
    first, queries = (sum(side[key] for side in sides) for key in ("not_first", "queries"))
    interval = " to ".join(f"{end:.2g}" for end in each["interval"] if end is not None)
    cells = [f"{each['batch_size']}", _number(each["equilibrium_temperature"]), interval or "none"]
    cells += [_number(each["equilibrium_scale"]), _number(each["effective"]), _number(each["effective_own"])]
    cells += [f"{first} of {queries}"]
    if biased:
        cells += [_number(each[key], 3) for key in ("equilibrium_bias", "balanced_bias", "push_over_pull")]
    return (*cells, *([_number(each["wanted_temperature"])] if wanted else []))


def _sentence(each: dict, found: dict) -> str:
    """State what a learned temperature does at one batch size, beside the one of the training or of the loss."""
    clip, there, trained = found["clip"], each["equilibrium_temperature"], found["trained_temperature"]
    at = f"batch {each['batch_size']}: "
    if each["state"] == "grows":
        first = all(side["not_first"] == 0 for side in each["directions"].values())
        why = "every positive ranks first" if first else "the loss falls with every scale"
        return (
            f"{at}no equilibrium, for {why}: a learned scale runs to its clip ({clip:g}, temperature {1 / clip:.4g}); "
            "fix the temperature, or take larger batches or harder negatives"
        )
    if there is None:
        why = "positives score below the mean of their row" if each["state"] == "falls" else "all scores are alike"
        return f"{at}{STATES[each['state']]}, for {why}; look at the pairing of the rows and at the embeddings"
    if each["state"] == "clipped":
        return f"{at}the equilibrium {there:.4g} is beyond the clip: a learned scale runs to {clip:g}"
    own = found["own_temperature"] if trained is None else trained
    way = "grow" if there < own else "fall"
    said = f"trained with {own:.4g}, the" if trained is not None else "the"
    return (
        f"{at}{said} equilibrium of these embeddings is {there:.4g}: a learned scale would {way} from {1 / own:.4g} to "
        f"{1 / there:.4g}"
    )


def _spans(each: dict, found: dict) -> list[str]:
    """Say what scale the scores have, and what temperatures of other libraries make of it."""
    if "span" not in each:
        return []
    name, (low, high) = "the score" if found["metric"] == "given" else found["metric"], each["span"]
    tried = [(at, number) for at, number in each["effective_at"].items() if number is not None]
    said = ", ".join(f"{at} gives {number:.1f}" + (" effective negatives" if not k else "")
                     for k, (at, number) in enumerate(tried))  # fmt: skip
    return [f"batch {each['batch_size']}: {name} spans {low:.3g} to {high:.3g}: temperature {said}"]


def _next(data: xr.Dataset, found: dict, own: dict) -> tuple[Step, ...]:
    """The command that counts at the equilibrium of a batch size; of the largest that has one where it has none."""
    held = [each for each in (*found["batch_sizes"].values(), own) if each["held_temperature"] is not None]
    if not held:
        return ()
    each, loss = held[-1], found["loss"]
    name = "scale" if "scale" in loss["parameters"] else "temperature"
    value = each["held_temperature"] if name == "temperature" else 1 / each["held_temperature"]
    parameters = loss["parameters"] | {name: f"{value:.6g}"}
    if each.get("equilibrium_bias") is not None:
        parameters["bias"] = f"{each['equilibrium_bias']:.6g}"
    options = {"loss": loss["name"], "param": given(parameters), "batch_size": each["batch_size"]}
    return following(data.attrs, "count", options)
