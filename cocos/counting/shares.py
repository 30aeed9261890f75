"""The kind of a share, its unit, and the weights that it is of, in words."""

from collections.abc import Mapping

# Weights other than the closed-form derivative of the loss: name and meaning.
KINDS_OF_WEIGHTS = {
    "stop_gradient": ("stop-gradient", "what training uses; a factor of the loss is held fixed in it"),
    "pseudo": ("pseudo-gradient", "made up by the backward pass of its authors, not the derivative of the loss"),
    "autograd": ("by autograd", "no closed form"),
}


def share(loss) -> str:
    """Kind of a share: a `probability`, a number of `violations`, a part of the `unit`, or `unknown`."""
    if loss.unit_from == "unknown":
        return "unknown"
    return loss.share or ("violations" if loss.hinge else "unit")


def kind_of_weights(attrs: Mapping) -> tuple[str, str]:
    """Name and meaning of the weights of a Dataset; both empty where they are the derivative by a closed form."""
    return KINDS_OF_WEIGHTS.get(attrs.get("gradient", ""), ("", ""))


def about_weights(attrs: Mapping) -> str:
    """Describe the weights of a Dataset in one sentence; empty where they are the derivative by a closed form."""
    return ": ".join(filter(None, kind_of_weights(attrs)))


def above(attrs: dict, eps: float | None = None) -> str:
    """Say in words when a negative contributes, like `probability above 1 %`, by the kind of share (docs/eps.md)."""
    eps = float(attrs["eps"] if eps is None else eps)
    percent = f"{100 * eps:.6g} %"
    return {
        "probability": f"probability above {percent}",
        "violations": "any violation" if eps < 1 else f"more than {eps:g} violations",
        "unknown": f"more than {percent} of the push",
    }.get(attrs.get("share", ""), f"weight above {percent} of its unit")


def about_unit(attrs: dict) -> str:
    """One sentence on the unit of a share; empty where it is the loss's own natural one."""
    unit = attrs.get("unit", "natural")
    said = {"own": "the unit is the loss's own", "sum": "the unit is the sum of the terms' units"}
    said |= {"unknown": "the unit of this loss is not known: parts of the query's own push are counted", "natural": ""}
    return said.get(unit, "the unit is " + (unit if unit.startswith("given") else f"that of {unit}, the same loss"))
