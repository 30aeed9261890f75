"""Losses of a library by name: which classes are adapted, their parameters, and how to install it."""

import copy
import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from cocos.base.errors import InputError, nearest
from cocos.losses.external.adapted import Adapted
from cocos.losses.external.adapter import Adapter, Settings
from cocos.losses.external.guard import guarded
from cocos.losses.external.signature import literal, named, parameters_of, signature_of, value_of


@dataclass(frozen=True)
class Library:
    """A library whose losses are run as they are.

    Args:
        prefix: of its losses' names, without the colon.
        package: that is imported.
        modules: with its losses, the first that is there.
        install: what pip installs.
        adapters: of its classes.
        unusable: class -> why its negatives cannot be counted.
    """

    prefix: str
    package: str
    modules: tuple[str, ...]
    install: str
    adapters: tuple[Adapter, ...]
    unusable: Mapping[str, str] = field(default_factory=dict)

    def adapter(self, spelling: str) -> Adapter:
        """The adapter of a class; capitals do not matter, nor does the ending `Loss`.

        Raises:
            InputError: there is none, or it cannot be counted.
        """
        name = spelling.partition(":")[2].strip()
        usable = {each.name: each for each in self.adapters}
        for known in (*usable, *self.unusable):
            if name.lower() in {known.lower(), known.lower().removesuffix("loss")}:
                if known in self.unusable:
                    raise InputError(f"loss {self.prefix}:{known}: {self.unusable[known]}")
                return usable[known]
        words = nearest(f"loss of {self.package}", name, usable)
        raise InputError(f"{words}; any other is named by its module, --loss package.module:{name or 'Class'}")

    def canonical(self, spelling: str) -> str:
        """The name as the library writes it."""
        return f"{self.prefix}:{self.adapter(spelling).name}"

    def counterpart(self, spelling: str) -> str | None:
        """Name of the loss of the shelf whose recorded parameters it takes."""
        return self.adapter(spelling).counterpart

    def found(self, name: str) -> Any:
        """A class of the library.

        Raises:
            InputError: the library is not installed, cannot be imported, or has no such class.
            ModuleNotFoundError: a package that it needs is not installed; it becomes an InputError.
        """
        try:
            there = importlib.util.find_spec(self.package) is not None
        except (ImportError, ValueError):
            there = False
        if not there:
            raise InputError(f"a loss with {self.prefix}: needs {self.package}; pip install {self.install}")
        for place in self.modules:
            with guarded(f"loss {self.prefix}:{name}", while_=f", {self.package} could not be imported", dtypes=False):
                try:
                    module = importlib.import_module(place)
                except ModuleNotFoundError as error:
                    if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                        raise
                    continue
            if isinstance(found := getattr(module, name, None), type):
                return found
        raise InputError(
            f"loss {self.prefix}:{name}: the installed {self.package} has no such class; pip install -U {self.install}"
        )

    def _signature(self, adapter: Adapter) -> dict[str, inspect.Parameter]:
        """Parameters of the constructor that are numbers or words, by name."""
        return {
            name: each
            for name, each in named(signature_of_class(self.found(adapter.name))).items()
            if name not in adapter.supplied
        }

    def known(self, spelling: str) -> set[str]:
        """Names of the parameters that it takes."""
        adapter = self.adapter(spelling)
        return self._signature(adapter).keys() | adapter.call.keys() | adapter.synonyms.keys() | {"unit"}

    def qualified(self, spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with a `temperature`, `scale` or `bias` under the library's own name.

        Raises:
            InputError: one is given twice, or is no number above 0 where it must be.
        """
        adapter, found = self.adapter(spelling), {}
        for name, value in parameters.items():
            own, number = name, value
            if name in adapter.synonyms:
                own, read = adapter.synonyms[name]
                try:
                    number = read(float(value))
                except (ValueError, TypeError, ZeroDivisionError):
                    raise InputError(
                        f"{self.canonical(spelling)}: {name} {value!r}, expected a number above 0"
                    ) from None
            if own in found:
                raise InputError(f"parameter {own} of {self.canonical(spelling)} is given twice")
            found[own] = number
        return found

    def load(self, spelling: str, given: dict[str, Any]) -> Adapted:
        """A loss of the library with the parameters of its constructor and of its call, and `unit`.

        Raises:
            InputError: the library is not installed, or it knows no such loss or parameter.
        """
        adapter, spelling = self.adapter(spelling), self.canonical(spelling)
        cls, fields, usable = self.found(adapter.name), self._signature(adapter), self.known(spelling)
        own, reserved = parameters_of(spelling, self.qualified(spelling, given), usable - {"unit"})
        for name in (*reserved.keys() - {"unit"}, *own.keys() - usable):
            raise InputError(nearest(f"parameter of {spelling}", name, usable))
        plain = {name: value_of(name, value, fields[name]) for name, value in own.items() if name in fields}
        call = {name: _number(spelling, name, own[name]) for name in own.keys() & adapter.call.keys()}

        def build() -> Any:
            return cls(**adapter.parts() | adapter.prepared(plain))

        with guarded(spelling):
            module = build()
        return self._adapted(adapter, spelling, module, build, call, plain | call, reserved.get("unit"))

    def of(self, module: nn.Module) -> Adapted | None:
        """A module of a class of the library, as a loss with its own settings; None: it has no adapter."""
        cls = type(module)
        adapter = next((each for each in self.adapters if each.name == cls.__name__), None)
        if adapter is None or cls.__module__.partition(".")[0] != self.package:
            return None

        def build() -> Any:
            parts = {id(getattr(module, name, None)): part for name, part in adapter.parts().items()}
            return copy.deepcopy(module, parts)  # in which they stand for its own, which are not copied

        return self._adapted(adapter, f"{self.prefix}:{adapter.name}", module, build, {}, {}, None)

    def _adapted(
        self,
        adapter: Adapter,
        spelling: str,
        module: Any,
        build: Any,
        call: Settings,
        given: dict[str, Any],
        unit: float | None,
    ) -> Adapted:
        settings = adapter.read(module) | adapter.call | call
        if why := adapter.refuses(settings):
            raise InputError(f"{spelling}: {why}")
        begun = {n: v for n, v in adapter.call.items() if n not in call and v is not None}
        values = " and ".join(f"{name} {value:.6g}" for name, value in begun.items())
        remark = (
            f"{values}: {self.package} begins a training there, and a trained model has its own, which "
            f"{' '.join(f'-p {name}=' for name in begun)} gives"
        )
        remarks = (remark,) if begun else ()
        return Adapted(spelling, given, self.package, adapter, build, settings, unit_=unit, remarks=remarks)


def signature_of_class(cls: Any) -> inspect.Signature | None:
    """Signature of the constructor; None where Python does not know it."""
    try:
        return inspect.signature(cls)
    except (TypeError, ValueError):
        return signature_of(cls)


def _number(spelling: str, name: str, value: Any) -> float | None:
    """A number of a call, from a number or from text."""
    found = literal(value)
    if found is None or (isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < float("inf")):
        return found
    raise InputError(f"{spelling}: {name} {value!r}, expected a finite number")
