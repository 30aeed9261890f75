"""Built-in losses that equal each other, always or under a condition, which `cocos.measures.equivalences` verifies."""

from collections.abc import Callable
from typing import Any

from cocos.losses.base import Loss

ALWAYS, ONE_POSITIVE, UNIT_NORMS, UNIT_VECTORS = "always", "one positive", "unit norms", "unit vectors"
POWERS = ("t^2", "sqrt", "t^1.5")  # functions of the distance other than lines


def as_warp(loss: Any) -> dict[str, Any] | None:
    """Return the parameters of the warped softmax without a boundary; None for powers of the distance."""
    if {loss.f1, loss.f2} & {*POWERS}:
        return None
    first, second = (1.0 if f == "t" else float(f) for f in (loss.f1, loss.f2))
    return {"alpha": 0.0, "k1": 1.0, "k2": first / second, "delta": 1.0, "scale": loss.scale * second}


# Loss, equal loss, function from the loss to the equal loss's parameters (None if they differ), condition.
Row = tuple[str, str, Callable[[Any], dict[str, Any] | None], str]
ROWS: tuple[Row, ...] = (
    ("ntxent", "sampled_softmax", lambda x: {"scale": 1 / x.temperature}, ALWAYS),
    ("ntxent", "normalized_softmax", lambda x: {"temperature": x.temperature}, ALWAYS),
    ("ntxent", "proxynca_pp", lambda x: {"scale": 1 / (2 * x.temperature)}, UNIT_VECTORS),
    ("ntxent", "supcon", lambda x: {"temperature": x.temperature}, ONE_POSITIVE),
    ("supcon", "ntxent", lambda x: {"temperature": x.temperature}, ONE_POSITIVE),
    ("mil_nce", "ntxent", lambda x: {"temperature": x.temperature}, f"{UNIT_VECTORS}, {ONE_POSITIVE}"),
    ("hcl", "ntxent", lambda x: {"temperature": x.temperature} if x.beta == x.prior == 0 else None, ALWAYS),
    ("mnrl", "ntxent", lambda x: {"temperature": 1 / x.scale} if x.softmax_scale is not None else None, ALWAYS),
    ("logq_softmax", "ntxent", lambda x: {"temperature": x.temperature}, UNIT_VECTORS),
    ("smoothed_softmax", "ntxent", lambda x: {"temperature": x.temperature} if x.smoothing == 0 else None, ALWAYS),
    ("sampled_softmax", "ntxent", lambda x: {"temperature": 1 / x.scale}, ALWAYS),
    ("sampled_softmax", "snm", lambda x: {"scale": x.scale, "fraction": 1.0}, ALWAYS),
    ("snm", "sampled_softmax", lambda x: {"scale": x.scale} if x.fraction == 1 else None, ALWAYS),
    ("ce_softmax", "ce_nm", lambda x: {"scale": x.scale, "fraction": 1.0}, ALWAYS),
    ("ce_nm", "ce_softmax", lambda x: {"scale": x.scale} if x.fraction == 1 else None, ALWAYS),
    ("n_pair", "linear_softmax", lambda x: {"smoothing": 0.0}, ALWAYS),
    ("n_pair", "ntxent", lambda x: {"temperature": 1.0}, UNIT_VECTORS),
    ("linear_softmax", "n_pair", lambda x: {} if x.smoothing == 0 else None, ALWAYS),
    ("normalized_softmax", "ntxent", lambda x: {"temperature": x.temperature}, ALWAYS),
    ("normalized_softmax", "cosface", lambda x: {"scale": 1 / x.temperature, "margin": 0.0}, ALWAYS),
    ("normalized_softmax", "arcface", lambda x: {"scale": 1 / x.temperature, "margin": 0.0}, ALWAYS),
    ("l2_softmax", "normalized_softmax", lambda x: {"temperature": 1 / x.scale}, UNIT_VECTORS),
    ("cosface", "normalized_softmax", lambda x: {"temperature": 1 / x.scale} if x.margin == 0 else None, ALWAYS),
    ("arcface", "normalized_softmax", lambda x: {"temperature": 1 / x.scale} if x.margin == 0 else None, ALWAYS),
    ("adaface", "normalized_softmax", lambda x: {"temperature": 1 / x.scale} if x.margin == 0 else None, ALWAYS),
    ("adaface", "cosface", lambda x: {"scale": x.scale, "margin": x.margin} if x.h == 0 < x.margin else None, ALWAYS),
    (
        "magface",
        "normalized_softmax",
        lambda x: {"temperature": 1 / x.scale} if x.u_m == x.lambda_g == 0 else None,
        ALWAYS,
    ),
    ("a_softmax", "l_softmax", lambda x: {"margin": x.margin, "annealing": x.annealing}, UNIT_NORMS),
    ("a_softmax", "normalized_softmax", lambda x: {"temperature": 1.0} if x.margin == 1 else None, UNIT_NORMS),
    ("l_softmax", "a_softmax", lambda x: {"margin": x.margin, "annealing": x.annealing}, UNIT_NORMS),
    ("l_softmax", "normalized_softmax", lambda x: {"temperature": 1.0} if x.margin == 1 else None, UNIT_NORMS),
    ("proxynca_pp", "euclidean_softmax", lambda x: {"f1": "t^2", "f2": "t^2", "scale": x.scale}, ALWAYS),
    ("proxynca_pp", "ntxent", lambda x: {"temperature": 1 / (2 * x.scale)}, UNIT_VECTORS),
    ("euclidean_softmax", "warped_softmax", as_warp, ALWAYS),
    ("euclidean_softmax", "proxynca_pp", lambda x: {"scale": x.scale} if x.f1 == x.f2 == "t^2" else None, ALWAYS),
    (
        "warped_softmax",
        "euclidean_softmax",
        lambda x: {"f1": repr(float(x.k2)), "f2": "t", "scale": x.scale} if x.alpha == 0 or x.k1 == x.k2 == 1 else None,
        ALWAYS,
    ),
    ("fastap", "listwise_ap", lambda x: {"bins": x.bins + 1, "low": -1.0, "high": 1.0}, UNIT_VECTORS),
    ("listwise_ap", "fastap", lambda x: {"bins": x.bins - 1} if (x.low, x.high) == (-1, 1) else None, UNIT_VECTORS),
)


def equal_losses(loss: Loss) -> list[tuple[str, dict[str, Any], str]]:
    """Return the built-in losses that equal this one as (name, parameters, condition).

    Examples:
        >>> equal_losses(cocos.losses.load("supcon"))
        [('ntxent', {'temperature': 0.1}, 'one positive')]
    """
    rows = [(equal, parameters(loss), condition) for name, equal, parameters, condition in ROWS if name == loss.name]
    return [(equal, parameters, condition) for equal, parameters, condition in rows if parameters is not None]
