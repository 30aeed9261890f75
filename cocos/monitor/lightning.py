"""A callback for Lightning: the monitor on the loss module of a LightningModule, its numbers in every logger."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cocos.base.errors import InputError
from cocos.monitor import Monitor, callbacks

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    from pytorch_lightning import Callback, LightningModule, Trainer

__all__ = ["MonitorCallback"]

logger = logging.getLogger("cocos")


class MonitorCallback(Callback):
    """Record the loss of a LightningModule while `Trainer.fit` runs; the numbers go to the loggers of the Trainer.

    Steps are those of Lightning, `trainer.global_step`, which a resumed run continues. Under gradient accumulation one
    batch of a step is recorded. After the training `monitor` has the records and the alarms.

    Args:
        loss: the module that computes the loss, or the name of its attribute like `criterion`; None: the one attribute
            whose name contains `loss` or `criterion`.
        every: record one in this number of steps, and the first one.
        log: called with the numbers by name and the step, in addition to the loggers.
        store: file to which every record is appended, `.jsonl`.
        eps: smallest share that contributes.
        detectors: by name: False for off, or thresholds; None: all of them.
        groups: called for the groups of the rows of the next batch; None: read from the arguments of the loss.

    Examples:
        >>> from lightning.pytorch import Trainer
        >>> trainer = Trainer(callbacks=[MonitorCallback(every=50)], logger=False, accelerator="cpu")
    """

    def __init__(
        self,
        loss: nn.Module | str | None = None,
        every: int = 50,
        log: callbacks.Log | None = None,
        store: Path | str | None = None,
        eps: float = 0.01,
        *,
        detectors: Mapping[str, Mapping[str, Any] | bool] | None = None,
        groups: Callable[[], Any] | None = None,
    ):
        super().__init__()
        self.monitor: Monitor | None = None
        self._loss, self._every, self._log, self._store = loss, every, log, store
        self._eps, self._detectors, self._groups = eps, detectors, groups
        self._due: callbacks.Due | None = None
        self._kind = ""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach the monitor."""
        module = callbacks.given(self._loss, pl_module) or callbacks.only(pl_module)
        if module is None:
            raise InputError(
                f"loss: {type(pl_module).__name__} has no module whose name contains 'loss' or 'criterion'; make the "
                "loss a module, like self.loss = Loss(), or name its attribute, MonitorCallback(loss='head')"
            )

        def log(numbers: dict[str, float], step: int) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=step)

        self._due, self._kind = callbacks.Due(self._every), type(module).__name__
        self.monitor = Monitor(
            callbacks.unwrapped(module), self._every, callbacks.logged(log, self._log), self._store, self._eps,
            detectors=self._detectors, groups=self._groups, due=self._due,
        )  # fmt: skip

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Tell the monitor the step."""
        if self.monitor is not None and self._due is not None:
            self._due.begin(trainer.global_step + 1)  # of 50 steps, the last one, which Lightning calls 49
            self.monitor.step = trainer.global_step
            self.monitor.inputs = batch if self._due.now else None

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look which parameters a gradient has reached."""
        if self.monitor is not None:
            self.monitor.look(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Detach the monitor, and say which detectors were watching, or that the loss was never called."""
        self._close()
        said = self._due.missed(self._kind, "MonitorCallback('head.criterion')") if self._due is not None else None
        if self.monitor is not None and trainer.is_global_zero:
            logger.warning(said or callbacks.closing(self.monitor))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Detach the monitor from a training that failed or was interrupted."""
        self._close()

    def _close(self) -> None:
        if self.monitor is not None:
            self.monitor.close()
