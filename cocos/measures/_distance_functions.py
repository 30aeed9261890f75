"""Functions of a distance that a softmax reads: named, warped, or written by the user; parsed, never executed."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs

# Maximum number of characters of an expression.
EXPRESSION_CHARACTERS = 200
# Maximum depth of an expression.
EXPRESSION_DEPTH = 20
POWERS = {"t^2": 2.0, "sqrt": 0.5, "t^1.5": 1.5}
TENSOR_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": torch.abs,
    "min": torch.minimum,
    "max": torch.maximum,
}
BINARY_FUNCTIONS = {"min", "max"}
BINARY_OPERATIONS: dict[type, Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.div,
    ast.Pow: torch.pow,
}


@dataclass(frozen=True)
class Curve:
    """A function of a distance t ≥ 0, and the slope that a gradient sees.

    Args:
        name: as it is written.
        value: of distances, element by element.
        height: a function whose derivative is the slope; None: the value itself. They differ where a part of the value
            is held constant, as in the warp.
    """

    name: str
    value: Callable[[Tensor], Tensor] = field(repr=False, compare=False)
    height: Callable[[Tensor], Tensor] | None = field(default=None, repr=False, compare=False)

    def slope(self, distance: Tensor) -> Tensor:
        """Derivative at each distance by torch.func, of the shape of `distance`."""
        return torch.func.grad(lambda t: self.value(t).sum())(distance)


def _warp(alpha: float, k1: float, k2: float, delta: float) -> Curve:
    def value(t: Tensor) -> Tensor:
        inside = k1 * t + delta * (t - k1 * t).detach()
        return torch.where(t < alpha, inside, k2 * t + (1 - k2) * alpha)

    def height(t: Tensor) -> Tensor:
        return alpha + torch.where(t < alpha, k1, k2) * (t - alpha)

    return Curve(f"warp(alpha={alpha:g}, k1={k1:g}, k2={k2:g}, delta={delta:g})", value, height)


def _power(exponent: float) -> Callable[[Tensor], Tensor]:
    def value(t: Tensor) -> Tensor:
        apart = t > 0  # at distance 0 the value is 0, and no force has a direction
        return torch.where(apart, torch.where(apart, t, 1.0) ** exponent, 0.0)

    return value


def parse(
    text: str,
    *,
    name: str = "f",
    alpha: float = 3.0,
    k1: float = 0.65,
    k2: float = 1.5,
    delta: float = 1.0,
) -> Curve:
    """The function that a text names.

    Args:
        text: `t`, `t^2`, `sqrt`, `t^1.5`, a number k for kt, `warp`, or an expression of t such as `t + 0.3*sin(t)`: of
            numbers, t, + - * / ^, parentheses and the functions sqrt, exp, log, log1p, tanh, sin, cos, abs, min, max.
        name: of the function, for the error.
        alpha: of the warp, as are the next ones: its boundary.
        k1: its slope inside.
        k2: its slope outside.
        delta: multiplier of the factor that is held constant.
    """
    text = str(text).strip()
    if text == "warp":
        for what, value in (("alpha", alpha), ("delta", delta), ("k1", k1), ("k2", k2)):
            bound = "of at least" if what in {"alpha", "delta"} else "above"
            if not (math.isfinite(value) and (value > 0 or (value == 0 and bound != "above"))):
                raise InputError(f"{what}: {value}, expected a finite number {bound} 0")
        return _warp(alpha, k1, k2, delta)
    if text in POWERS:
        return Curve(text, _power(POWERS[text]))
    tree = _tree(text, name)
    value = _evaluated(tree, text, name)
    if isinstance(tree, ast.Constant | ast.UnaryOp) and not _reads(tree):
        factor = float(value(torch.zeros((), dtype=torch.float64)))
        if not 0 < factor < math.inf:
            raise InputError(f"{name}: {text!r}, expected a finite factor above 0")
        return Curve("t" if factor == 1 else f"{factor:g}t", lambda t: factor * t)
    if not _reads(tree):
        raise InputError(f"{name}: {text!r} does not depend on t")
    curve, distance = Curve(text, value), torch.logspace(-2, 2, 41, dtype=torch.float64)
    for what, values in (("value", curve.value(distance)), ("slope", curve.slope(distance))):
        if not values.isfinite().all():
            at = float(distance[~values.isfinite()][0])
            raise InputError(f"{name}: {text!r} has no finite {what} at t = {at:g}")
    return curve


def _reads(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "t" for node in ast.walk(tree))


def _tree(text: str, name: str) -> ast.expr:
    """The expression's parts."""
    if len(text) > EXPRESSION_CHARACTERS:
        raise InputError(f"{name}: {len(text)} characters, expected at most {EXPRESSION_CHARACTERS}")
    try:
        return ast.parse(text.replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"{name}: {text!r} is no expression of t, like t + 0.3*sin(t)") from None


def _evaluated(tree: ast.expr, text: str, name: str) -> Callable[[Tensor], Tensor]:
    """A function that evaluates the parts with torch; nothing of the text is ever run."""

    def build(node: ast.expr, depth: int) -> Callable[[Tensor], Tensor]:
        if depth > EXPRESSION_DEPTH:
            raise InputError(f"{name}: {text!r} has more than {EXPRESSION_DEPTH} parts within parts")
        match node:
            case ast.Name(id="t"):
                return lambda t: t
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and abs(number) < 1e9:
                return lambda t: torch.full_like(t, float(number))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                inner, factor = build(operand, depth + 1), -1.0 if isinstance(sign, ast.USub) else 1.0
                return lambda t: factor * inner(t)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY_OPERATIONS:
                first, second, apply = build(left, depth + 1), build(right, depth + 1), BINARY_OPERATIONS[type(op)]
                if isinstance(op, ast.Pow) and not _reads(right):
                    exponent = float(second(torch.zeros((), dtype=torch.float64)))
                    return lambda t: first(t) ** exponent
                return lambda t: apply(first(t), second(t))
            case ast.Call(func=ast.Name(id=called), args=[*given], keywords=[]) if called in TENSOR_FUNCTIONS and len(
                given
            ) == 1 + (called in BINARY_FUNCTIONS):
                parts, apply = [build(each, depth + 1) for each in given], TENSOR_FUNCTIONS[called]
                return lambda t: apply(*(part(t) for part in parts))
        what = ast.unparse(node)
        raise InputError(
            f"{name}: {what!r} in {text!r} is not allowed; expected numbers, t, + - * / ^, and the functions "
            + ", ".join(TENSOR_FUNCTIONS)
        )

    return build(tree, 0)


@dataclass(frozen=True)
class CurveSoftmax:
    r"""Cross-entropy of each positive against the negatives, on any functions of the distances: eq. 5 of the paper.

    .. math:: \ell(d) = \sum_{p \in P} \log \left( 1 + \sum_{n \in N} e^{T (f_1(d_p) - f_2(d_n))} \right)

    Args:
        f1: of the distance to a positive.
        f2: of the distance to a negative.
        scale: T.

    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656, eqs. 5-7.
    """

    f1: Curve
    f2: Curve
    scale: float = 1.0
    metric: ClassVar[str] = "euclidean"
    couples: ClassVar[str] = "query"
    spelling: ClassVar[str] = "curves"

    def __post_init__(self):
        if not 0 < self.scale < math.inf:
            raise InputError(f"scale: {self.scale}, expected a finite number above 0")

    @property
    def given(self) -> dict:
        """The parameters, as text and numbers."""
        return {"f1": self.f1.name, "f2": self.f2.name, "scale": self.scale}

    @property
    def gradient(self) -> str:
        """Kind of the weights: see `cocos.losses.Loss`."""
        return "stop_gradient" if self.f1.height or self.f2.height else "autograd"

    def exponents(self, pairs: Pairs) -> Tensor:
        """T times -f1 at the positives and -f2 at the negatives, (Q, C)."""
        distance = -pairs.scores
        return -self.scale * torch.where(pairs.positive, self.f1.value(distance), self.f2.value(distance))

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats."""
        return pairs.cross_entropy(self.exponents(pairs))
