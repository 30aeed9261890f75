"""How one class of another library is run, and which loss of the shelf it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cocos import losses
from cocos.losses.external.columns import BatchColumns

Settings = dict[str, Any]
Twin = Callable[[Settings], losses.ClosedForm | None]


@dataclass(frozen=True)
class Adapter:
    """How one class of a library is run, and which loss of the shelf it is.

    Args:
        name: of the class.
        run: (module, columns, settings) -> value, its mean over the queries.
        twin: the loss of the shelf with the same weights, by the settings.
        counterpart: name of the loss of the shelf whose recorded parameters it takes.
        read: settings that a module of the class keeps.
        refuses: why a module with these settings cannot be run here; None: it can.
        call: settings that the call takes, with the values that training begins with; None: left out.
        scale: the setting by which it multiplies the scores.
        unit_rows: it reads rows that the model has divided by their norms, and does not divide them itself.
        columns: it takes hard negatives, as columns beside the positive.
        apart: it scores each column of documents by itself.
        turned: blocks of columns of which it computes the transpose.
        pairwise: it scores a query with its own documents alone.
        mean: it returns a mean over the queries.
        taught: it reads scores of a teacher, or rows of a guide.
        graded: it compares graded pairs.
        synonyms: other word -> the parameter, and its value from that of the word.
        prepared: arguments of the constructor, by the parameters that are given.
        parts: objects that the constructor takes and cocos has.
        supplied: arguments of the constructor that are no parameters of the loss.
    """

    name: str
    run: Callable[[Any, BatchColumns, Settings], Any]
    twin: Twin
    counterpart: str | None = None
    read: Callable[[Any], Settings] = lambda _: {}
    refuses: Callable[[Settings], str | None] = lambda _: None
    call: Settings = field(default_factory=dict)
    scale: str = "scale"
    unit_rows: bool = False
    columns: bool = False
    apart: bool = False
    turned: tuple[str, ...] = ()
    pairwise: bool = False
    mean: bool = True
    taught: bool = False
    graded: bool = False
    synonyms: dict[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    prepared: Callable[[dict[str, Any]], dict[str, Any]] = dict
    parts: Callable[[], dict[str, Any]] = dict
    supplied: tuple[str, ...] = ()
