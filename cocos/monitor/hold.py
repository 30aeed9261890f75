"""Hold the number of negatives that share the push while a loss trains, by its temperature, scale or margin."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from weakref import WeakMethod

import torch
from torch import Tensor, nn

from cocos import losses
from cocos.base import ranges
from cocos.base.errors import InputError, nearest
from cocos.counting import sharpness, weights
from cocos.embeddings.scores import Pairs
from cocos.monitor import Monitor, brief
from cocos.monitor.callbacks import HELD
from cocos.monitor.calls import Seen
from cocos.monitor.tap import Hook, world

__all__ = ["Hold", "usual"]

logger = logging.getLogger("cocos")
# The default target for B candidates is FACTOR * B ** POWER: a curve through the best effective numbers of NT-Xent in
# an exploration on captions with batches of 32 and 128. A registered comparison on fresh data found it no better than
# one constant temperature, and did not find it as good as a search (docs/hold_study.md).
FACTOR, POWER = 1.35, 2 / 3
# Part of the training between two settings where `every` is not given.
EVERY = 0.1
# Calls between two settings where the length of the training is not given either.
EVERY_CALLS = 100
# Ends of the names of attributes, and how a value v sharpens the loss: by 1 / v, v, exp(v), or as a margin.
FORMS = {
    "logit_scale": "log",
    "log_scale": "log",
    "temperature": "soft",
    "temp": "soft",
    "tau": "soft",
    "scale": "sharp",
    "gamma": "sharp",
    "margin": "margin",
}
# Largest difference of the pushes of a query, as parts of its push, from those of the closed form.
SAME_PUSH = 1e-3
# Largest relative difference of a measured slope from the scale that an attribute stands for.
SAME_SLOPE = 0.01
# Largest logarithm of a scale that is taken to be one.
MOST_LOG = 50.0

Target = Annotated[
    float, ranges.number("an effective number of negatives: finite and at least 1", lambda n: 1 <= n < math.inf)
]
Part = Annotated[float, ranges.number("a part of the queries: at least 0 and below 1", lambda part: 0 <= part < 1)]
After = Annotated[
    float, ranges.number("a part of the training, from 0 to 1, or a number of calls", lambda n: 0 <= n < math.inf)
]


def usual(candidates: int) -> float:
    """The target for a batch where none is given: 1.35 B^(2/3), at most the number of negatives.

    Args:
        candidates: B, of each query.

    Examples:
        >>> from cocos.monitor.hold import usual
        >>> [round(usual(size)) for size in (32, 128, 512)]
        [14, 34, 86]
    """
    return min(FACTOR * candidates**POWER, max(1, candidates - 1))


@dataclass(frozen=True)
class _Knob:
    """A number of a module that sets its sharpness: a float, or a tensor with one element.

    Args:
        owner: the module whose attribute it is.
        name: of the attribute.
        path: name that the user sees, from the loss.
        form: see `FORMS`.
    """

    owner: nn.Module
    name: str
    path: str
    form: str

    def read(self) -> float:
        held = getattr(self.owner, self.name)
        return float(held.detach() if isinstance(held, Tensor) else held)

    def write(self, value: float) -> None:
        held = getattr(self.owner, self.name)
        if isinstance(held, Tensor):
            with torch.no_grad():
                held.fill_(value)
        else:
            setattr(self.owner, self.name, value)

    def way(self, slope: float) -> str:
        """How the value sharpens the loss, see `FORMS`: by its size, which tells a scale from its logarithm.

        Args:
            slope: of the logits over the scores now.
        """
        value = self.read()
        ways = {"soft": 1 / value if value else 0.0, "sharp": value, "log": math.exp(min(value, MOST_LOG))}
        same = [form for form, made in ways.items() if abs(made / slope - 1) <= SAME_SLOPE]
        return self.form if self.form in same or not same else same[0]

    def moved(self, softer: float, way: str) -> float:
        """The value at which a softmax is this many times as warm."""
        value = self.read()
        return {"soft": value * softer, "sharp": value / softer, "log": value - math.log(softer)}[way]

    def softer(self, value: float, way: str) -> float:
        """How many times as warm a softmax is at another value."""
        now = self.read()
        return {"soft": value / now, "sharp": now / value, "log": math.exp(now - value)}[way]


def _form(name: str) -> str | None:
    return next((form for end, form in FORMS.items() if name == end or name.endswith(f"_{end}")), None)


def _knob(module: nn.Module, parameter: str | None) -> _Knob:
    """The number of a module that sets its sharpness, by its name or the only one."""
    found = []
    for path, each in module.named_modules():
        names = {*vars(each), *each._parameters, *each._buffers}
        for name in sorted(names):
            value, form = getattr(each, name, None), _form(name)
            one = isinstance(value, float) or (isinstance(value, Tensor) and value.numel() == 1)
            if one and form is not None and not isinstance(value, bool):
                found.append(_Knob(each, name, f"{path}.{name}" if path else name, form))
    kind, there = type(module).__name__, [each.path for each in found]
    if parameter is not None:
        same = [each for each in found if parameter in {each.path, each.name}]
        if len(same) != 1:
            raise InputError(nearest(f"parameter of {kind}", parameter, there))
        return same[0]
    if not found:
        raise InputError(f"loss {kind}: it has no number named {', '.join(FORMS)}; name the one to set, parameter=")
    if len(found) > 1:
        raise InputError(f"loss {kind}: several numbers set its sharpness; name one, parameter={' or '.join(there)}")
    return found[0]


class _Listener(Monitor):
    """Hand over what the calls of a module showed, in place of a record."""

    def __init__(self, module: nn.Module, deliver: Callable[[list[Seen]], None], due: Callable[[], bool]):
        super().__init__(module, detectors={}, due=due)
        self._hand_over = deliver

    def _record(self, call: Any, by_width: list[list[Seen]], **_: Any) -> None:
        if by_width:
            self._hand_over(by_width[0])


class Hold(nn.Module):
    """Set the temperature, scale or margin of a loss while it trains, so that its effective number is a wanted one.

    It stands in the place of the loss and is called as the loss is. From a point of the training on, every so often, it
    reads the scores of a batch, solves for the value, and the following calls use it; between these settings, and in
    every gradient, the loss is what it would be with this constant. The value is part of the `state_dict`.

    A module is read through its own forward and backward pass, as `cocos.Monitor` reads it, and its attribute is set;
    a loss of the shelf is called with Pairs or `(scores, positive, negative)`. A number that cannot be reached is
    approached as far as the bounds allow, and is an entry of `alarms`.

    Args:
        loss: the module of the training loop, a name like `ntxent`, or a loss of the shelf.
        effective: wanted effective number of negatives, mean over the queries and directions; None: see `usual`. At
            least 1.
        after: when it begins, as a part of the training or, from 1 on, as a number of calls.
        steps: calls of the loss in the whole training; None: a callback gives it, or it is not needed.
        idle: wanted part of the queries that a hinge leaves without a push, in place of `effective`.
        every: calls between two settings; None: a tenth of the training.
        parameter: name of the number to set, where there are several.
        bounds: of the value; None: from 1e-4 to 1e4 times the loss's own.
        log: called with the numbers by name and the call, like `wandb.log`.

    Raises:
        InputError: an option that cannot be used, or a loss without a number to set.

    Source: the effective number is the perplexity of SNE (Hinton & Roweis 2002), which finds its bandwidths alike.

    Examples:
        >>> scores = torch.tensor([[0.8, 0.7, 0.3]], requires_grad=True)
        >>> hold = cocos.Hold("ntxent", effective=1.5, after=0)
        >>> hold(scores, torch.tensor([[True, False, False]])).sum().backward()
        >>> hold.parameter, round(hold.value, 2), [round(each["effective"], 2) for each in hold.history]
        ('temperature', 0.22, [1.5])
    """

    def __init__(
        self,
        loss: Any,
        effective: float | None = None,
        after: float = 0.4,
        steps: int | None = None,
        *,
        idle: float | None = None,
        every: int | None = None,
        parameter: str | None = None,
        bounds: tuple[float, float] | None = None,
        log: Callable[[dict[str, float], int], object] | None = None,
    ):
        super().__init__()
        _checked(effective=effective, after=after, steps=steps, idle=idle, every=every, bounds=bounds)
        if log is not None and not callable(log):
            raise InputError(f"log: {type(log).__name__}, expected a function of (dict, step), like wandb.log")
        self.steps, self.history = steps, list[dict[str, Any]]()
        self.alarms: list[dict[str, Any]] = []
        self._effective, self._idle, self._after, self._every = effective, idle, after, every
        self._bounds, self._log = bounds, log
        self._calls = 0
        self._value: float | None = None
        self._reader: _Listener | None = None
        self._knob: _Knob | None = None
        self._hooks: list[Any] = []
        self._closed = False
        self._met: dict[str, float] = {}
        module = isinstance(loss, nn.Module)
        self.loss: Any = loss if module else losses.load(loss) if isinstance(loss, str) else losses.of(loss)
        if module:
            self._knob = _knob(loss, parameter)
            self.parameter = self._knob.path
            hinge = self._knob.form == "margin"
        else:
            self.parameter = sharpness.parameter_of(self.loss, parameter)
            hinge = bool(losses.traits(self.loss).hinge)
        if idle is not None and not hinge:
            raise InputError(f"idle: {idle:g}, but only a hinge with a margin leaves queries without a push")
        if module:
            self._hooks.append(loss.register_forward_pre_hook(Hook(self._begin), with_kwargs=True))
            self._reader = _Listener(loss, self._of_module, self._due)
            HELD[loss] = WeakMethod(self._numbers)
        HELD[self] = WeakMethod(self._numbers)

    @property
    def value(self) -> float:
        """The present value of the number that is held."""
        return self._knob.read() if self._knob is not None else float(losses.parameters(self.loss)[self.parameter])

    def close(self) -> None:
        """Leave the loss as it is now; a second time nothing happens."""
        self._closed = True
        for each in (self, self.loss if self._knob is not None else self):
            HELD.pop(each, None)
        for each in self._hooks:
            each.remove()
        self._hooks.clear()
        if self._reader is not None:
            self._reader.close()

    def _numbers(self) -> dict[str, float]:
        """The target and how far the last setting was from it, for the records of a monitor; nothing before it."""
        return self._met

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The loss of a batch; arguments and result are those of the loss.

        Raises:
            InputError: `steps` is needed and was not given.
        """
        if self._reader is None and not self._closed and torch.is_grad_enabled() and self.training:
            self._count()
            if self._due():
                pairs = args[0] if args and isinstance(args[0], Pairs) else Pairs(*args, **kwargs)
                self._set([pairs], self.loss)
                self._share()
                self._restore()
        return self.loss(*args, **kwargs)

    def _count(self) -> None:
        """Count a call in training."""
        if self.steps is None and 0 < self._after < 1:
            raise InputError(
                f"steps: None, and after={self._after:g} is a part of the training: give steps=, the number of calls "
                "of the loss in it, or after=0"
            )
        self._calls += 1

    def _due(self) -> bool:
        """Whether the last call that was counted is read."""
        begin = math.ceil(self._after * (self.steps or 1) if self._after < 1 else self._after)
        every = self._every or (max(1, round(EVERY * self.steps)) if self.steps else EVERY_CALLS)
        passed = self._calls - 1 - begin
        return passed >= 0 and passed % every == 0

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Before a call of a module in training: count it, and undo what an optimizer did to the value."""
        if not (module.training and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return
        before = self._due()
        self._count()
        if before:  # the first process has read the call before
            self._share()
        self._restore()

    def _share(self) -> None:
        """Take the value of the first process, in all of them at the same call."""
        if world() > 1:
            shared = [self._value]
            torch.distributed.broadcast_object_list(shared, src=0)
            self._value = shared[0]

    def _restore(self) -> None:
        """Give the loss the value that is held."""
        if self._value is None or self.value == self._value:
            return
        if self._knob is not None:
            self._knob.write(self._value)
        else:
            self.loss = sharpness.changed(self.loss, self.parameter, self._value)

    def _of_module(self, seen: list[Seen]) -> None:
        """Solve for the value of a module, with the loss of the shelf that pushes as it did."""
        if self._knob is None:
            return
        try:
            twin, pairs = _twin(seen, self._knob)
        except InputError as error:
            self._unsolved(error, seen[0].scores)
            return
        self._set(pairs, twin)

    def _set(self, pairs: Sequence[Pairs], loss: Any) -> None:
        """Set the value at which these pairs have the wanted number."""
        still = [each.with_scores(each.scores.detach().double()) for each in pairs]
        if self._idle is not None:
            value, before, found = _of_idle(still, loss, self._idle)
            number, target, name, bound = found, self._idle, "idle", "" if abs(found - self._idle) < 0.5 else "lower"
        else:
            target, name = self._wanted(still[0].scores), "effective"
            key = sharpness.parameter_of(loss) if self._knob is not None else self.parameter
            own = float(losses.parameters(loss)[key]) or sharpness.ZERO_START
            ends = self._bounds if self._knob is None else None
            ends = ends or (own / sharpness.REACH, own * sharpness.REACH)
            try:
                solved = sharpness.solve(loss, still, target, parameter=key, bounds=ends)
            except InputError as error:
                self._unsolved(error, still[0].scores)
                return
            before, value, number = solved.tried[0][1], solved.value, solved.effective
            bound = solved.bound or ("" if abs(number / target - 1) <= 0.05 else "jump")
        if self._knob is None:
            self.loss = sharpness.changed(self.loss, self.parameter, value)
        else:
            softer, slope = (1.0, 1.0) if self._knob.form == "margin" else _warmed(loss, value)
            way = "margin" if self._knob.form == "margin" else self._knob.way(slope)
            moved = value if way == "margin" else self._knob.moved(softer, way)
            low, high = self._bounds or (-math.inf, math.inf)
            if not low <= moved <= high:
                bound, moved = "lower" if moved < low else "upper", min(max(moved, low), high)
                number = self._at_bound(still, loss, moved if way == "margin" else self._knob.softer(moved, way))
            self._knob.write(moved)
        self._value = self.value
        self.history.append({
            "step": self._calls - 1,
            "value": self.value,
            name: number,
            "before": before,
            "target": target,
        })
        away = abs(number - target)
        self._met = {"held_target": target, "held_missed": away if name == "idle" else away / target}
        if bound:
            self._missed(
                f"{target:g} cannot be held on these scores: {self.parameter} {self.value:.4g} gives {number:.4g}"
            )
        if self._log is not None:
            of = {self.parameter.rpartition(".")[2]: self.value, name: number, "before": before, "target": target}
            try:
                self._log({f"cocos/hold/{key}": float(each) for key, each in of.items()}, self._calls - 1)
            except Exception as error:
                self._missed(f"the function log failed ({type(error).__name__}: {brief(error)})")

    def _wanted(self, scores: Tensor) -> float:
        """The target for a batch with these scores, (Q, C)."""
        return self._idle if self._idle is not None else self._effective or usual(scores.shape[1])

    def _at_bound(self, pairs: Sequence[Pairs], loss: Any, moved: float) -> float:
        """The number at another value of the loss of the shelf: a margin, or as a ratio of temperatures."""
        if self._idle is not None:
            return _of_idle(pairs, losses.load(losses.name_of(loss), margin=moved), self._idle)[1]
        key = sharpness.parameter_of(loss)
        own = float(losses.parameters(loss)[key])
        value = moved if key == "margin" else own * moved if key == "temperature" else own / moved
        ends = value / sharpness.REACH, value * sharpness.REACH
        at = sharpness.changed(loss, key, value)
        return sharpness.solve(at, pairs, self._wanted(pairs[0].scores), parameter=key, bounds=ends).tried[0][1]

    def _unsolved(self, error: InputError, scores: Tensor) -> None:
        """Note that no value was found."""
        self._met = {"held_target": self._wanted(scores), "held_missed": 1.0}
        self._missed(str(error))

    def _missed(self, reason: str) -> None:
        """Note an episode in which the number could not be held; the training goes on with the value as it is."""
        sentence = f"Hold: {reason}"
        if not self.alarms or self.alarms[-1]["last"] < self._calls - 1 - 2 * (self._every or EVERY_CALLS):
            self.alarms.append({"kind": "unheld", "sentence": sentence, "first": self._calls - 1})
            logger.warning("%s; the training goes on", sentence)
        self.alarms[-1] |= {"sentence": sentence, "last": self._calls - 1}

    def lasts(self, calls: int) -> None:
        """Take the number of calls of the loss in the whole training from a trainer, unless `steps` was given."""
        if self.steps is None and calls > 0:
            self.steps = calls

    def get_extra_state(self) -> dict[str, Any]:
        """The value that is held, and the number of calls, for `state_dict`."""
        return {"value": self._value, "calls": self._calls}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on with the value and the number of calls of a `state_dict`."""
        self._value, self._calls = state["value"], int(state["calls"])
        self._restore()


@ranges.checked
def _checked(
    *,
    effective: Target | None,
    after: After,
    steps: Annotated[int, ranges.whole(1)] | None,
    idle: Part | None,
    every: Annotated[int, ranges.whole(1)] | None,
    bounds: sharpness.Bounds | None,
) -> None:
    """Refuse options that cannot be used."""
    if effective is not None and idle is not None:
        raise InputError(f"effective: {effective:g} and idle: {idle:g}, expected one of them")


def _twin(seen: Sequence[Seen], knob: _Knob) -> tuple[Any, list[Pairs]]:
    """The loss of the shelf that pushes the negatives of each query as a module did, and Pairs of each direction."""
    pairs, pushes = [], []
    for each in seen:
        part = each.positive | each.negative
        scores = torch.where(part, each.scores, 0).detach().double()
        pairs.append(Pairs(scores, each.positive, each.negative))
        pushes.append(torch.where(each.negative, each.weights, 0).detach().double().clamp(min=0))
    for loss in _forms(seen, pairs, pushes, knob):
        if all(_alike(loss, each, push) for each, push in zip(pairs, pushes, strict=True)):
            return loss, pairs
    raise InputError(
        "this loss pushes its negatives neither as a softmax or a sigmoid of its scores does, nor as a hinge with its "
        f"margin, so {knob.path} cannot be solved for"
    )


def _warmed(loss: Any, value: float) -> tuple[float, float]:
    """Ratio of the new temperature of a softmax or sigmoid to its own one, and the slope of its logits as it is."""
    own = losses.parameters(loss)
    if "temperature" in own:
        return value / float(own["temperature"]), 1 / float(own["temperature"])
    return float(own["scale"]) / value, float(own["scale"])


def _forms(seen: Sequence[Seen], pairs: Sequence[Pairs], pushes: Sequence[Tensor], knob: _Knob) -> list[Any]:
    """Losses of the shelf that may push as a module does."""
    if knob.form == "margin":
        return [losses.load(name, margin=knob.read()) for name in ("triplet", "triplet_sh")]
    slope = _slope(pairs, pushes)
    found = [] if not slope > 0 else [losses.load("ntxent", temperature=1 / slope)]
    first = seen[0]
    if first.kind == "sigmoid" and first.scale and first.bias is not None:
        found.insert(0, losses.load("siglip", scale=first.scale / float(first.stretch or 1), bias=first.bias))
    return found


def _slope(pairs: Sequence[Pairs], pushes: Sequence[Tensor]) -> float:
    """Slope of the logarithm of the push over the score within the queries, by least squares that the push weighs."""
    over_up, over_over = 0.0, 0.0
    for each, push in zip(pairs, pushes, strict=True):
        part = push / push.sum(dim=1, keepdim=True).clamp(min=torch.finfo(push.dtype).tiny)
        height = torch.where(push > 0, push, 1).log()
        over, up = (side - (part * side).sum(dim=1, keepdim=True) for side in (each.scores, height))
        over_up, over_over = over_up + float((part * over * up).sum()), over_over + float((part * over * over).sum())
    return over_up / over_over if over_over > 0 else 0.0


def _alike(loss: Any, pairs: Pairs, push: Tensor) -> bool:
    """Whether a loss divides the push of each query among its negatives as it was divided."""
    own = torch.where(pairs.negative, weights.of(loss, pairs), 0).clamp(min=0)
    parts = [each / each.sum(dim=1, keepdim=True).clamp(min=torch.finfo(each.dtype).tiny) for each in (own, push)]
    some = (own > 0).any(dim=1) & (push > 0).any(dim=1)
    return bool(some.any()) and float((parts[0] - parts[1]).abs()[some].max()) <= SAME_PUSH


def _of_idle(pairs: Sequence[Pairs], loss: Any, idle: float) -> tuple[float, float, float]:
    """Margin that leaves a part of the queries without a push, the part that was so before, and the part that is then.

    A query is idle if its hardest negative is further than the margin behind its last positive.
    """
    gaps, still = [], 0
    for each in pairs:
        some = each.positive.any(dim=1) & each.negative.any(dim=1)
        hardest = each.scores.masked_fill(~each.negative, -torch.inf).amax(dim=1)
        last = each.scores.masked_fill(~each.positive, torch.inf).amin(dim=1)
        gaps.append((hardest - last)[some])
        push = torch.where(each.negative, weights.of(loss, each), 0)[some]
        still += int((push > 0).any(dim=1).logical_not().sum())
    gap = torch.cat(gaps).sort().values
    count = round(idle * len(gap))
    low = float(gap[count - 1]) if count else float(gap[0]) - 1.0
    margin = max(0.0, -(low + float(gap[count])) / 2 if count < len(gap) else -low)
    return margin, still / len(gap), float((gap <= -margin).double().mean())
