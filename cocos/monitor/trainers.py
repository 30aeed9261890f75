"""The monitor in the Trainer of Hugging Face, and in that of sentence-transformers; its numbers in every reporter."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from cocos.base.errors import InputError
from cocos.monitor import Monitor, callbacks
from cocos.monitor.tap import Hook

__all__ = ["Watched", "watch"]

logger = logging.getLogger("cocos")


class _Quiet(TrainerCallback):
    """Take the numbers out of a log before it is printed: a line of the console has room for the loss."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Remove every number of cocos."""
        if logs is not None:
            for name in [name for name in logs if name.startswith("cocos/")]:
                del logs[name]


class Watched(TrainerCallback):
    """The monitors of a trainer; made by `watch`.

    Args:
        trainer: that calls the losses.
        monitors: makes the monitor of a module, by the name of its dataset.
        find: finds the modules, by the names of their datasets; the only one has the name "".
        every: record one in this number of steps.
    """

    def __init__(
        self,
        trainer: Trainer,
        find: Callable[[], dict[str, nn.Module]],
        make: Callable[..., Monitor],
        every: int,
    ):
        self.monitors: dict[str, Monitor] = {}
        self._trainer, self._find, self._make, self._every = trainer, find, make, every
        self._modules: dict[str, nn.Module] = {}
        self._due: dict[str, callbacks.Due] = {}
        self._fresh: dict[str, float] = {}
        self._hooks: list[Any] = []  # with a method `remove`
        self._attach()
        present, self._quiet = trainer.callback_handler.callbacks, _Quiet()
        printers = [place for place, each in enumerate(present) if isinstance(each, PrinterCallback | ProgressCallback)]
        present.insert(min(printers, default=len(present)), self._quiet)
        present.insert(0, self)  # ahead of the reporters, which read the same dict

    def _attach(self) -> None:
        """Attach a monitor to each module that has none; a trainer with `model_init` makes its model anew."""
        for name, module in self._find().items():
            if self._modules.get(name) is not module:
                if name in self.monitors:
                    self.monitors[name].close()
                self._due[name] = callbacks.Due(self._every)
                self.monitors[name] = self._make(module, name, self._due[name], self._keep)
                self._modules[name] = module
        for each in self._hooks:
            each.remove()
        self._hooks, model = [], self._trainer.model
        if (
            isinstance(model, nn.Module) and model not in self._modules.values()
        ):  # else its arguments are those of the loss
            self._hooks.append(model.register_forward_pre_hook(Hook(self._enter), with_kwargs=True))

    def _enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep what the model is called with, for the loss that comes after it."""
        if model.training and not torch.compiler.is_compiling():
            for name, monitor in self.monitors.items():
                if self._due[name].now:
                    monitor.inputs = (args, kwargs)

    def _keep(self, numbers: dict[str, float], step: int) -> None:
        self._fresh |= numbers

    @property
    def monitor(self) -> Monitor:
        """The only monitor.

        Raises:
            InputError: there are several, one for each loss.
        """
        if len(self.monitors) > 1:
            names = ", ".join(map(repr, self.monitors))
            raise InputError(f"monitor: there is one for each loss; use monitors[name] with one of {names}")
        return next(iter(self.monitors.values()))

    @property
    def records(self) -> list[dict[str, Any]]:
        """Records of all monitors, in order of steps."""
        return sorted((each for monitor in self.monitors.values() for each in monitor.records), key=lambda r: r["step"])

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """The episodes of all monitors in which detectors fired, in the order of their first steps: see `Monitor`."""
        return sorted((each for monitor in self.monitors.values() for each in monitor.alarms), key=lambda a: a["first"])

    def watching(self) -> dict[str, str | None]:
        """Tell which detectors would fire at the last record; of several losses, whether they would for one of them.

        Returns:
            By the name of the detector: None, or why it cannot fire yet, or never will here: see `cocos.Monitor`.
        """
        several = [each.watching() for each in self.monitors.values()]
        return {name: None if any(each[name] is None for each in several) else several[0][name] for name in several[0]}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the trainer and its losses as they were; a second time nothing happens."""
        for monitor in self.monitors.values():
            monitor.close()
        for each in self._hooks:
            each.remove()
        for each in {self, self._quiet}.intersection(self._trainer.callback_handler.callbacks):
            self._trainer.callback_handler.callbacks.remove(each)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Follow a trainer that has made its model anew."""
        self._attach()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Tell the monitors the step: the number under which the trainer logs the update that begins."""
        for name, monitor in self.monitors.items():
            self._due[name].begin(state.global_step + 1)
            monitor.step = state.global_step + 1

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Look which parameters a gradient has reached."""
        if isinstance(self._trainer.model, nn.Module):
            for monitor in self.monitors.values():
                monitor.look(self._trainer.model)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Add what was recorded since the last log of the training."""
        if logs is not None and ("loss" in logs or "train_runtime" in logs):
            logs.update(self._fresh)
            self._fresh.clear()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Say which losses were never called, and of the others which detectors were watching."""
        for name, module in self._modules.items():
            said = self._due[name].missed(type(module).__name__, "watch(trainer, loss=module)")
            if state.is_world_process_zero:
                logger.warning(said or callbacks.closing(self.monitors[name], name))


def watch(
    trainer: Trainer,
    every: int = 50,
    log: callbacks.Log | None = None,
    store: Path | str | None = None,
    eps: float = 0.01,
    *,
    loss: nn.Module | str | None = None,
    detectors: Mapping[str, Mapping[str, Any] | bool] | None = None,
    groups: Callable[[], Any] | None = None,
) -> Watched:
    """Record the loss of a trainer; the numbers go to its reporters (W&B, TensorBoard, ...) whenever it logs.

    The loss is that of a SentenceTransformerTrainer (for a dict of losses, each of them), a module given as
    `compute_loss_func`, a module of the trainer whose attribute's name contains `loss` or `criterion`, or else the
    model, whose forward pass has the loss. Evaluation is silent. Steps are those of the trainer, which a resumed run
    continues; under gradient accumulation one batch of a step is recorded.

    Args:
        trainer: a `transformers.Trainer`, or one derived from it.
        every: record one in this number of steps, and the first one.
        log: called with the numbers by name and the step, in addition to the reporters.
        store: file to which every record is appended, `.jsonl`; of several losses, the name of the dataset is added.
        eps: smallest share that contributes.
        loss: the module that computes the loss, or the name of an attribute of the trainer like `criterion`; None: as
            above.
        detectors: by name: False for off, or thresholds; None: all of them.
        groups: called for the groups of the rows of the next batch; None: read from the arguments of the loss.

    Raises:
        InputError: no trainer, no loss, several, or an option that cannot be used.
    """
    if not isinstance(trainer, Trainer):
        raise InputError(f"trainer: {type(trainer).__name__}, expected a transformers.Trainer")
    path = None if store is None else Path(store)

    def make(module: nn.Module, name: str, due: callbacks.Due, keep: callbacks.Log) -> Monitor:
        logged = callbacks.logged(keep, log)
        own = path.with_stem(f"{path.stem}-{name}") if path is not None and name else path
        return Monitor(
            module, every, lambda numbers, step: logged(callbacks.renamed(numbers, name), step), own, eps,
            detectors=detectors, groups=groups, due=due,
        )  # fmt: skip

    return Watched(trainer, lambda: _modules(trainer, loss), make, every)


def _modules(trainer: Trainer, loss: nn.Module | str | None) -> dict[str, nn.Module]:
    """The modules that compute the losses of a trainer, by the names of their datasets; "" for the only one."""
    asked = callbacks.given(loss, trainer)
    own = getattr(trainer, "loss", None)
    if asked is None and isinstance(own, dict):
        names: dict[int, list[str]] = {}
        for name, each in own.items():
            names.setdefault(id(each), []).append(str(name))
        by_id = {id(each): each for each in own.values()}
        return {"+".join(each): callbacks.unwrapped(by_id[key]) for key, each in names.items()}
    choices = (asked, own, getattr(trainer, "compute_loss_func", None), callbacks.only(trainer), trainer.model)
    found = next((each for each in choices if isinstance(each, nn.Module)), None)
    if found is None:
        raise InputError("loss: the trainer has no model yet; give the module that computes the loss, loss=module")
    return {"": callbacks.unwrapped(found)}
