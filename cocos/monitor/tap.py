"""Read ∂ loss / ∂ scores from the forward and backward pass of a module, which stay as they are."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, overrides
from torch.overrides import TorchFunctionMode

from cocos.monitor import calls, directions
from cocos.monitor.calls import Call, Seen
from cocos.monitor.products import (
    Flow,
    Graph,
    PairScores,
    Product,
    Products,
    given_scores,
    hook_flows,
    hook_pair_scores,
    received,
)

__all__ = ["Hook", "Tap", "Tapped"]

# Number of letters of an error in a warning.
MOST_LETTERS = 300
# Backward passes after which one that ended in an error is forgotten.
MOST_TASKS = 100
# Maximum number of matrices of one process that are searched among the candidates of all.
MOST_LOCAL = 32
COMPILED = (
    "the loss is compiled, so none of its scores can be seen; compile the model without its loss, or call the monitor "
    "with the name of the loss and the embeddings"
)
RECOMPUTED = "the loss is called under hooks for saved tensors, like those of checkpointing: its graph is left alone"
UNCALLED = "no call of the loss was seen in training: none can be where it is compiled as a part of another function"
UNARRIVED = "no gradient arrived at the scores of the loss"
OVER_BATCH = "it multiplies columns, as a cross-correlation over the batch does: it compares dimensions, and no rows"
UNSEEN = "no matrix of scores of two sets of rows was found on the way to the loss"


class Hook:
    """A hook of a module that stays with it: in a copy or a pickle of the module it does nothing, without cocos too.

    Args:
        function: that is called.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *given: Any) -> Any:
        """Call the function."""
        return self._function(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything and returns None


def joined() -> bool:
    """Whether this process has joined those that train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def world() -> int:
    """Number of processes that train together."""
    return torch.distributed.get_world_size() if joined() else 1


def rank() -> int:
    """Number of this process among those that train together."""
    return torch.distributed.get_rank() if joined() else 0


def brief(error: Exception) -> str:
    """First line of an error, cut where it is long: an operator that is missing is followed by hundreds of lines."""
    return next(iter(str(error).splitlines()), "")[:MOST_LETTERS]


@dataclass(frozen=True, eq=False)
class Tapped:
    """What one forward and backward pass of a module showed."""

    by_width: list[list[Seen]]  # directions for each width of the embeddings, the largest first
    lost: float  # part of the pairs whose gradient never arrived, 0 to 1
    repeated: Tensor | None  # rows of the inputs among the arguments that equal an earlier one, (); None: no inputs
    seconds: float  # that the tap took, without the time of `deliver`


@dataclass(eq=False)
class _Backward:
    """A tensor whose backward pass is read: the loss, or a part of it that a cached loss takes backward by itself."""

    read: list[tuple[Product, list[Flow]]]
    pairs: list[tuple[PairScores, list[Tensor]]] = field(default_factory=list)
    upstream: list[Tensor] = field(default_factory=list)

    def pieces(self) -> list[directions.Piece]:
        """Make pieces of the matrices that were read, with ∂ this tensor / ∂ scores."""
        precise = [each.to(torch.promote_types(each.dtype, torch.float32)) for each in self.upstream]
        means = [each.mean() if each.numel() > 1 else each.reshape(()) for each in precise]
        arrived = None if not means else means[0] if len(means) == 1 else torch.stack(means).mean()
        return directions.pieces_of(self.read, self.pairs, arrived)


class _Look(TorchFunctionMode):
    """Look at the functions that a forward pass calls."""

    def __init__(self, current: Call, failed: Callable[[str], None]):
        super().__init__()
        self.current, self._failed = current, failed
        self.products = Products(current.arguments)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of PyTorch and look at its result."""
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "backward":
            self.timed(lambda: self.root([each for each in _tensors(args[:1]) if each.requires_grad]))
        out = func(*args, **kwargs)
        self.timed(self._see, func, args, kwargs, out)
        return out

    def _see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Keep the result of a function of PyTorch where it may matter."""
        self.products.see(func, args, kwargs, out)
        self._keep_local(out)

    def _keep_local(self, out: Any) -> None:
        """Keep a matrix that this process computed by itself, where there are several processes."""
        local = self.current.local
        if local is not None and isinstance(out, Tensor) and out.ndim == 2 and out.requires_grad:
            if out.is_floating_point() and not received(out.grad_fn):
                self.current.local = [*local[-MOST_LOCAL:], out.detach()]

    def timed(self, call: Callable[..., None], *given: Any) -> None:
        """Call a function, add up the time that the tap takes, and keep its errors from the training."""
        start = time.perf_counter()
        try:
            call(*given)
        except Exception as error:
            self._failed(_sentence(error))
        self.current.seconds += time.perf_counter() - start

    def root(self, tensors: list[Tensor], arrived: Callable[[], None] | None = None) -> None:
        """Register the hooks that read the gradients of all products on which tensors depend."""
        found, roots = self.products.found, [each.grad_fn for each in tensors if each.grad_fn is not None]
        arguments = [each.grad_fn for each in self.current.arguments if each.grad_fn is not None]
        ends = [*arguments, *self.products.over_batch]
        graph, reached = _reached(roots, found, ends)
        if not reached and arrived is not None and not self.current.roots and not self.products.over_batch:
            found = self.products.per_query or given_scores(self.current.arguments, roots)
            graph, reached = _reached(roots, found, ends)
        read = self._wider_matrices(graph, reached)
        joins = graph.joins()
        root = _Backward(
            [(each, hook_flows(graph, each, joins)) for each in read],
            hook_pair_scores(graph, self.products.pair_scores),
        )
        for product in {*read, *reached}:
            product.freeze()
        if root.read or arrived is not None:
            self.current.roots.append(root)
            self.products.found = [each for each in found if each not in reached]
            self.products.pair_scores = [each for each in self.products.pair_scores if each.node is not None]
            for each in tensors:
                each.register_hook(partial(_arrived, root, arrived))

    def _wider_matrices(self, graph: Graph, reached: list[Product]) -> list[Product]:
        """Products, or the wider matrices that they enter beside what is no product of all pairs."""
        wide: list[Product] = []
        entered: set[Product] = set()
        for node, parts in graph.mixed().items():
            among = [each for each in reached if {each.node, each.base} & set(parts)]
            wider = self.products.join(node, among)
            if wider is not None and not entered & set(among):
                wide.append(wider)
                entered |= set(among)
        return [*wide, *(each for each in reached if each not in entered)]

    def keep_rest(self) -> None:
        """Keep the products on which nothing depends: tiles of a matrix may be among them."""
        rest = self.products.found
        for product in rest:
            product.freeze()
        if rest:
            self.current.roots.append(_Backward([(each, [Flow(False, None, None, None)]) for each in rest]))


def _reached(roots: list[Any], products: Sequence[Product], ends: Sequence[Any]) -> tuple[Graph, list[Product]]:
    """Walk the graph between a loss and products, or its arguments; find the products on which it depends."""
    nodes = {node for each in products for node in (each.node, each.base) if node is not None}
    graph = Graph(roots, nodes, ends)
    return graph, [each for each in products if {each.node, each.base} & graph.reached]


def _arrived(root: _Backward, call: Callable[[], None] | None, gradient: Tensor) -> None:
    if not root.upstream:
        for _, flows_of in root.read:
            for flow in flows_of:
                for kept in flow.arrived.values():
                    kept.clear()  # of a backward pass of something else that reads the same scores
        for _, kept in root.pairs:
            kept.clear()
    root.upstream.append(gradient.detach())
    if call is not None:
        call()


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {brief(error)}"


def _tensors(value: Any) -> list[Tensor]:
    return [each for _, each in calls.leaves(value)]


def _losses(output: Any) -> list[Tensor]:
    """Find the losses among what a module returned."""
    if isinstance(output, Mapping) and isinstance(output.get("loss"), Tensor):
        output = output["loss"]
    found = [each for each in _tensors(output) if each.requires_grad and each.is_floating_point()]
    return [each for each in found if each.numel() == 1] or [each for each in found if each.ndim == 1]


class Tap:
    """Module hooks, idle until a call is wanted.

    Args:
        module: that returns the loss.
        wanted: asked at each forward pass in training; what it returns, if it is true, is handed to `deliver`.
        deliver: called at the end of the backward pass.
        failed: called with the reason where a call could not be read.
        groups: ids of the rows of the call: see `Monitor`.
    """

    def __init__(
        self,
        module: nn.Module,
        wanted: Callable[[], Any],
        deliver: Callable[[Any, Tapped], None],
        *,
        failed: Callable[[str], None],
        groups: Callable[[], Any] | None = None,
    ):
        self._module, self._wanted, self._deliver, self._groups, self._report = module, wanted, deliver, groups, failed
        self._watch: _Look | None = None
        self._calls = 0
        self._arrived: dict[int, list[Call]] = {}  # calls by the backward pass that has come to them
        if _is_compiled(module) and not hasattr(module, "_orig_mod"):
            self._failed(COMPILED)  # its hooks are compiled with it, and say nothing
        self._hooks = [
            module.register_forward_pre_hook(Hook(self._enter), with_kwargs=True),
            module.register_forward_hook(Hook(self._exit), with_kwargs=True, always_call=True),
        ]

    def remove(self) -> None:
        """Leave the module as it was; a second time nothing happens."""
        if self._hooks and not self._calls and "torch._dynamo" in sys.modules and not _is_compiled(self._module):
            self._failed(UNCALLED)
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._leave()

    def _failed(self, reason: str) -> None:
        with suppress(Exception):
            self._report(reason)

    def _safely(self, call: Callable[[], None]) -> None:
        try:
            with torch.no_grad():
                call()
        except Exception as error:
            self._failed(_sentence(error))

    def _leave(self) -> _Look | None:
        """Take the mode off the stack, wherever it is."""
        watch, self._watch = self._watch, None
        above = []
        if watch is not None and watch in overrides._get_current_function_mode_stack():
            while (top := overrides._pop_mode()) is not watch:
                above.append(top)
            for each in reversed(above):
                overrides._push_mode(each)
        return watch

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling() or module is not self._module:
            return
        if module.training and torch.is_grad_enabled() and not _in_backward():
            self._safely(partial(self._start, args, kwargs))

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._leave()
        self._calls += 1
        token = self._wanted()
        if not token:
            return
        reason = COMPILED if _is_compiled(self._module) else RECOMPUTED if _is_recomputed() else None
        if reason is not None:
            self._failed(reason)
            return
        tensors = _tensors((args, kwargs))
        current = Call(
            token,
            self._calls,
            tensors,
            groups=self._groups() if self._groups is not None else None,
            labels=[each for each in tensors if each.ndim == 1 and not each.is_floating_point()],
            given=[each.detach() for each in tensors if each.ndim == 2 and each.is_floating_point()],
            local=[] if world() > 1 else None,
            repeated=calls.repeated((args, kwargs), named=True),
            rank=rank(),
        )
        self._watch = _Look(current, self._failed)
        self._watch.__enter__()

    def _exit(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling() or module is not self._module:
            return
        watch = None
        with suppress(Exception):
            watch = self._leave()
        if watch is not None and output is not None:
            watch.timed(self._end_forward, watch, output)

    def _end_forward(self, watch: _Look, output: Any) -> None:
        current, losses = watch.current, _losses(output)
        if losses:
            current.value = torch.stack([each.detach().mean() for each in losses]).sum()
        watch.root(losses, partial(self._queue, current))
        watch.keep_rest()
        current.arguments = []
        if not any(flow.arrived for root in current.roots for _, flows in root.read for flow in flows):
            current.roots.clear()
            self._failed(OVER_BATCH if watch.products.over_batch else UNSEEN)

    def _queue(self, current: Call) -> None:
        """Wait for the end of a backward pass, which comes to the last call first, to deliver its calls in order."""
        if current.queued:
            return
        current.queued = True
        task = torch._C._current_graph_task_id()
        if task not in self._arrived:
            self._arrived = {each: calls for each, calls in self._arrived.items() if each > task - MOST_TASKS}
            self._arrived[task] = []
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._end_backward, task))
        self._arrived[task].append(current)

    def _end_backward(self, task: int) -> None:
        for current in sorted(self._arrived.pop(task, ()), key=lambda each: each.number):
            self._safely(partial(self._finish, current))

    def _finish(self, current: Call) -> None:
        start = time.perf_counter()
        with torch.inference_mode(), directions.remembered():
            pieces = [piece for root in current.roots for piece in root.pieces()]
            current.roots.clear()
            if not pieces:
                return
            try:
                by_width, lost = directions.of(pieces, current)
            except directions.Unread as error:
                self._failed(str(error))
                return
        current.seconds += time.perf_counter() - start
        if by_width:
            self._deliver(current.token, Tapped(by_width, lost, current.repeated, current.seconds))
        else:
            self._failed(UNARRIVED)


def _is_compiled(module: nn.Module) -> bool:
    """Whether a module is what `torch.compile` returned, or its call was compiled in place."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _in_backward() -> bool:
    """Whether a backward pass is under way, which calls checkpointed modules once more."""
    return torch._C._current_graph_task_id() >= 0


def _is_recomputed() -> bool:
    """Whether what the graph saves goes through hooks; to look at it may compute the forward pass anew."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is not None and top(True) is not None
