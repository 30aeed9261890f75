"""Any loss of pytorch-metric-learning, as it is: `pml:CircleLoss`, or a module that was built already."""

import contextlib
import dataclasses
import importlib
import inspect
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from cocos import losses
from cocos.base.errors import InputError, Unfit, nearest
from cocos.embeddings import Embeddings
from cocos.losses.external.embedded import Embedded
from cocos.losses.external.guard import guarded
from cocos.losses.external.score_matrix import See, watch_matrices
from cocos.losses.external.signature import literal, parameters_of
from cocos.losses.external.traits import Traits

PREFIX = "pml:"
PML_PACKAGE = "pytorch_metric_learning"
OBJECTS = {  # arguments that are objects of the library, by their classes' names
    "distance": "distances",
    "reducer": "reducers",
    "miner": "miners",
    "embedding_regularizer": "regularizers",
    "weight_regularizer": "regularizers",
}
SIZES = {"num_classes": "classes", "embedding_size": "width", "descriptors_dim": "width"}
PER_CLASS = ("centers_per_class", "sub_centers")
OWN_REDUCER = ("ProxyAnchorLoss",)  # its elements are proxies, not queries
PLAIN_KINDS = (bool, int, float, str)
# Arguments that do not change the gradient, or whose place a loss of cocos has: it adds up over its queries.
IGNORED_ARGUMENTS = ("collect_stats", "embedding_reg_weight", "mat_based_loss", "reducer")
TRIAL_CLASSES, TRIAL_WIDTH = 5, 3  # of the trial that shows which way its proxies lie
UNUSABLE = {
    "BaseLossWrapper": "it is a base class",
    "BaseMetricLossFunction": "it is a base class",
    "GenericPairLoss": "it is a base class",
    "EmbeddingRegularizerMixin": "it is a part of a class",
    "WeightRegularizerMixin": "it is a part of a class",
    "CrossBatchMemory": "it keeps embeddings of earlier batches, which a frozen model does not have; name the loss in "
    "it and take a larger batch",
    "SelfSupervisedLoss": "it only makes labels for another loss; name that loss, with its groups in the file",
    "MultipleLosses": "it only adds losses; write the sum, like pml:TripletMarginLoss+0.5*pml:ContrastiveLoss",
    "ManifoldLoss": "it draws its classes at random, so it has no positives and negatives of the batch to count",
    "VICRegLoss": "it compares the dimensions of embeddings, so it has no negatives to count; cocos evaluate FILE "
    "gives the alignment, uniformity and effective rank of its embeddings",
}


def _module_of_library(part: str) -> Any:
    try:
        return importlib.import_module(f"{PML_PACKAGE}.{part}")
    except ModuleNotFoundError as error:
        if error.name not in {PML_PACKAGE, f"{PML_PACKAGE}.{part}"}:
            raise
        raise InputError(
            "a loss with pml: needs pytorch-metric-learning; pip install pytorch-metric-learning"
        ) from None


def _classes(part: str) -> dict[str, type]:
    return {name: value for name, value in vars(_module_of_library(part)).items() if isinstance(value, type)}


def _class(spelling: str) -> type:
    """Find the class that is named; capitals do not matter, nor does the ending `Loss`."""
    name, classes = spelling[len(PREFIX) :].strip(), _classes("losses")
    for each in classes:
        if name.lower() in {each.lower(), each.lower().removesuffix("loss")}:
            if each in UNUSABLE:
                raise InputError(f"loss {PREFIX}{each}: {UNUSABLE[each]}")
            return classes[each]
    raise InputError(nearest("loss of pytorch-metric-learning", name, classes.keys() - UNUSABLE.keys()))


def canonical(spelling: str) -> str:
    """Write the name as the library does."""
    return f"{PREFIX}{_class(spelling).__name__}"


def qualified(spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as they are."""
    return parameters


def _arguments(cls: Any) -> dict[str, inspect.Parameter]:
    """List the parameters of the constructor, with those that it hands on to its base classes."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if base is nn.Module:
            break
        for name, parameter in inspect.signature(base.__init__).parameters.items():
            if parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD} and name != "self":
                found.setdefault(name, parameter)
    return found


def known(spelling: str) -> set[str]:
    """List the names of the parameters that it takes."""
    return _arguments(_class(spelling)).keys() - SIZES.keys() | {"miner", "unit"}


def _built_object(spelling: str, name: str, chosen: str, arguments: dict[str, Any]) -> Any:
    """Build an object of the library by the name of its class."""
    classes = _classes(OBJECTS[name])
    if chosen not in classes:
        raise InputError(nearest(f"{name} of {spelling}", str(chosen), classes))
    takes = _arguments(classes[chosen])
    for each in arguments:
        if each not in takes:
            raise InputError(nearest(f"parameter of {name} {chosen}", each, takes))
    with guarded(f"{spelling}, {name} {chosen}"):
        return classes[chosen](**arguments)


@dataclass(frozen=True, eq=False)
class _PmlLoss:
    """A loss of the library, built anew for every batch, since some remember earlier ones.

    Args:
        spelling: its name.
        cls: its class.
        given: plain arguments.
        objects: name -> (class, its arguments).
        proxies: the parameter of its proxies, and whether a proxy is a row of it; None without proxies.
        watched: look at all matrices that PyTorch computes, not only at those of its distance.
    """

    spelling: str
    cls: Any
    given: dict[str, Any]
    objects: dict[str, tuple[str, dict[str, Any]]]
    proxies: tuple[str, bool] | None = None
    watched: bool = False

    def build(self, classes: int, width: int, per_class: int = 1) -> Any:
        """Build the module for these sizes; its parts add up over the batch unless a reducer was chosen."""
        takes = _arguments(self.cls)
        sizes = {"classes": classes, "width": width}
        own = {name: sizes[size] for name, size in SIZES.items() if name in takes}
        own |= {name: per_class for name in PER_CLASS if name in takes}
        parts = {
            name: _built_object(self.spelling, name, *self.objects[name])
            for name in OBJECTS
            if name in self.objects and name in takes
        }
        with guarded(self.spelling), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = self.cls(**own | self.given, **parts)
            if "reducer" not in parts and self.cls.__name__ not in OWN_REDUCER:
                module.reducer = _module_of_library("reducers").DoNothingReducer()
        return module

    def __call__(self, part: Embeddings, query: Tensor, candidate: Tensor, see: See) -> Tensor:
        """Compute the loss of each query, (Q,), where it has one, else of the batch, ().

        Samples, and proxies, come in the order of their classes.
        """
        (labels, reference), arguments, state = self._labels(part), {}, {}
        per_class = 1
        if self.proxies:
            labels, per_class = self._of_proxies(part)
            state = {self.proxies[0]: candidate if self.proxies[1] else candidate.T}
        elif not part.shared:  # other tensors than the queries': the library takes the same object for the same samples
            arguments = {"ref_emb": candidate, "ref_labels": reference}
        module = self.build(len(part.candidate) // per_class, query.shape[1], per_class).to(query.device)
        if "miner" in self.objects:
            miner = _built_object(self.spelling, "miner", *self.objects["miner"])
            others = () if part.shared or self.proxies else (part.candidate.detach(), reference)
            arguments["indices_tuple"] = miner(part.query.detach(), labels, *others)  # its choice has no gradient
        shape = (len(query), len(candidate))
        watch = watch_matrices(shape, see) if self.watched else contextlib.nullcontext()
        if not self.watched:
            module.distance.register_forward_hook(
                lambda _, given, matrix: see(matrix) if matrix.shape == shape else matrix
            )
        try:
            with watch, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = torch.func.functional_call(module, state, (query, labels), arguments)
        except ValueError as error:
            if "ref_emb is not supported" not in str(error):
                raise
            raise Unfit(
                f"{self.spelling}: it reads one labelled set, and there are queries and other candidates; give a file "
                "with embeddings and labels"
            ) from None
        return _summed_by_query(result, query) if isinstance(result, dict) else result

    def _labels(self, part: Embeddings) -> tuple[Tensor, Tensor]:
        """Number the groups of both sides."""
        groups = torch.cat([part.query_group, part.candidate_group]).unique(return_inverse=True)[1]
        return groups[: len(part.query_group)].clone(), groups[len(part.query_group) :].clone()

    def _of_proxies(self, part: Embeddings) -> tuple[Tensor, int]:
        """Number the class of each query as its proxies are, and count the proxies of a class."""
        classes, sizes = part.candidate_group.unique(return_counts=True)
        per_class = int(sizes[0])
        if (sizes != per_class).any():
            raise Unfit(
                f"{self.spelling}: classes with {int(sizes.min())} to {int(sizes.max())} proxies, expected one number"
            )
        if per_class > 1 and not set(PER_CLASS) & _arguments(self.cls).keys():
            raise Unfit(f"{self.spelling}: {per_class} proxies a class, and it has one")
        labels = torch.searchsorted(classes, part.query_group)
        found = torch.isin(part.query_group, classes)
        if not found.all():
            raise Unfit(f"{self.spelling}: class {int(part.query_group[~found][0])} has samples and no proxy")
        return labels, per_class

    def twins(self, metric: str) -> list[losses.Loss]:
        """List the losses of the shelf whose peer this one is, with these parameters, on scores of this metric."""
        actual = {n: p.default for n, p in _arguments(self.cls).items()} | self.given
        found = []
        for name in losses.names():
            loss = losses.load(name)
            if loss.metric == metric and loss.peer():
                loss = _with_arguments(loss, self.cls.__name__, actual)
                miner = loss and loss.peer()[1].get("miner")
                found += [loss] if loss and miner == self.objects.get("miner", (None,))[0] else []
        return found


def _with_arguments(loss: Any, cls: str, actual: dict[str, Any]) -> Any:
    """Give a loss of the shelf the parameters with which its peer is this class with these arguments; None: none do.

    A parameter may be the argument, one over it, or the same angle in radians.
    """

    def peer(each: losses.Loss) -> dict[str, Any] | None:
        found = each.peer()
        return None if found is None or found[0] != cls else {k: v for k, v in found[1].items() if k in actual}

    def same(each: losses.Loss, key: str) -> bool:
        own = peer(each)
        values: tuple[Any, Any] = (own or {}).get(key), actual[key]
        if not all(isinstance(value, int | float) for value in values):
            return own is not None and values[0] == values[1]
        return math.isclose(*values, rel_tol=1e-9)

    for key in peer(loss) or ():
        tries = [loss]
        for field in dataclasses.fields(loss):
            for read in (float, int, lambda value: 1 / value, math.radians):
                with contextlib.suppress(Exception):  # a value that this parameter cannot have
                    tries.append(dataclasses.replace(loss, **{field.name: read(actual[key])}))
        loss = next((each for each in tries if same(each, key)), None)
        if loss is None:
            return None
    return loss if peer(loss) is not None else None


def twin(module: Any) -> tuple[losses.Loss, bool] | None:
    """Find the loss of the shelf that equals a module of the library, and whether it normalises rows; None: none does.

    The reducer of the module does not matter: a loss of the shelf adds up over its queries.
    """
    cls, distance = type(module), getattr(module, "distance", None)
    metrics = {"CosineSimilarity": "cosine", "DotProductSimilarity": "dot", "LpDistance": "euclidean"}
    metric, unit = metrics.get(type(distance).__name__), bool(getattr(distance, "normalize_embeddings", False))
    power, regularizer = getattr(distance, "power", 1), getattr(module, "embedding_regularizer", None)
    if metric is None or getattr(distance, "p", 2) != 2 or regularizer is not None or list(module.parameters()):
        return None
    if metric == "dot" and unit:
        metric = "cosine"
    if power != 1:
        metric = "squared_euclidean" if (metric, power) == ("euclidean", 2) else ""
    given = {name: getattr(module, name) for name in _arguments(cls) if hasattr(module, name)}
    plain = {name: value for name, value in given.items() if isinstance(value, int | float | str)}
    spelling = f"{PREFIX}{cls.__name__}"
    found = [each for each in _PmlLoss(spelling, cls, plain, {}).twins(metric) if _others_are_default(each, cls, plain)]
    return (found[0], unit and metric != "cosine") if found else None


def _others_are_default(loss: Any, cls: Any, given: dict[str, Any]) -> bool:
    """Whether arguments that the peer of a loss does not name have their defaults."""
    named = (loss.peer() or ("", {}))[1].keys() | {"collect_stats", "embedding_reg_weight"}
    defaults = {name: each.default for name, each in _arguments(cls).items() if name not in named}
    return all(given[name] == value for name, value in defaults.items() if name in given)


def _summed_by_query(parts: dict[str, Any], query: Tensor) -> Tensor:
    """Sum an unreduced loss over each query, (Q,); over all, (), if a part belongs to no query."""
    totals, of_batch = query.new_zeros(len(query)), None
    for part in parts.values():
        values, indices = part["losses"], part["indices"]
        if not isinstance(values, Tensor):
            continue
        if part["reduction_type"] == "already_reduced":
            of_batch = values.sum() + (0 if of_batch is None else of_batch)
            continue
        anchors = indices if isinstance(indices, Tensor) else indices[0]
        totals = totals.index_add(0, anchors, values.reshape(-1).to(totals.dtype))
    return totals if of_batch is None else totals.sum() + of_batch


def _proxies(loss: _PmlLoss) -> tuple[str, bool] | None:
    """Find the parameter of one proxy a class by its shape in a trial, and whether a proxy is a row."""
    for name, parameter in loss.build(TRIAL_CLASSES, TRIAL_WIDTH).named_parameters():
        if tuple(parameter.shape) in {(TRIAL_CLASSES, TRIAL_WIDTH), (TRIAL_WIDTH, TRIAL_CLASSES)}:
            return name, parameter.shape[0] == TRIAL_CLASSES
    return None


def _default_distance(cls: Any, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name the distance that a loss has by itself, with some arguments changed."""
    default = cls.get_default_distance(None)
    plain = type(default)()
    kept = {name: getattr(default, name) for name in _arguments(type(default)) if hasattr(default, name)}
    return type(default).__name__, {n: v for n, v in kept.items() if v != getattr(plain, n)} | arguments


def load(spelling: str, given: dict[str, Any]) -> Embedded:
    """Load a loss of the library with its own arguments.

    Its distance and its miner are the library's defaults, or the classes that are named (`distance=CosineSimilarity`,
    `distance.power=2`, `miner=MultiSimilarityMiner`). Its parts add up over the queries, as everywhere here, unless a
    reducer is named; ProxyAnchorLoss keeps its own.
    """
    cls = _class(spelling)
    spelling = f"{PREFIX}{cls.__name__}"
    takes = known(spelling)
    own, reserved = parameters_of(spelling, given, takes - {"unit"})
    for name in reserved.keys() - {"unit"}:
        raise InputError(nearest(f"parameter of {spelling}", name, takes))
    plain: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for name, value in own.items():
        head, dot, tail = name.partition(".")
        if head not in takes or (dot and head not in OBJECTS):
            raise InputError(nearest(f"parameter of {spelling}", name, takes))
        if head not in OBJECTS:
            plain[name] = literal(value)
        elif not dot:
            objects[head] = (str(value), objects.get(head, (None, {}))[1])
        else:
            objects[head] = (
                objects.get(head, (None, {}))[0],
                {**objects.get(head, (None, {}))[1], tail: literal(value)},
            )
    if objects.get("distance", ("",))[0] is None:
        objects["distance"] = _default_distance(cls, objects["distance"][1])
    for head, (name, _) in objects.items():
        if name is None:
            raise InputError(f"{spelling}: a parameter of its {head} is given; name the {head} too, {head}=...")
    needed = [
        name
        for name, p in _arguments(cls).items()
        if p.default is p.empty and name not in plain.keys() | SIZES.keys() | {"mat_based_loss"}
    ]
    if needed:
        raise InputError(f"{spelling}: it needs {' and '.join(needed)}: -p {needed[0]}=...")
    loss = _PmlLoss(spelling, cls, plain, objects)
    loss = replace(loss, proxies=_proxies(loss))
    if "miner" in objects:
        _built_object(spelling, "miner", *objects["miner"])
    unit = reserved.get("unit")
    traits = Traits(
        couples="batch",
        gradient="autograd",
        sample="groups",
        reads="embeddings",
        matching="labels",
        unit_from="unknown" if unit is None else "given",
        spelling=spelling,
        given={name: literal(value) for name, value in given.items()},
    )
    return Embedded(
        traits=traits,
        unit_=unit,
        calls=(loss, replace(loss, watched=True)),
        needs="proxies" if loss.proxies else None,
        sorted_by_group=True,
        twins=loss.twins,
    )


def of(module: Any) -> Embedded | None:
    """Load the loss that `pml:` and the name of the class name, with the settings of a module.

    Returns:
        None where it has more than they say: proxies of its own, a regularizer, or objects of other kinds.
    """
    cls = type(module)
    if not hasattr(module, "distance") or list(module.parameters()) or cls.__name__ in UNUSABLE:
        return None
    arguments, given = _arguments(cls), {}
    for name in arguments.keys() - {*IGNORED_ARGUMENTS, *SIZES, "distance"}:
        value = getattr(module, name, arguments[name].default)
        if value is not None and not isinstance(value, PLAIN_KINDS):
            return None
        if value is not None and value != arguments[name].default:
            given[name] = value
    own, usual = module.distance, cls.get_default_distance(None)
    if _settings(own) != _settings(usual) or type(own) is not type(usual):
        plain = _settings(type(own)())
        given["distance"] = type(own).__name__
        given |= {f"distance.{name}": value for name, value in _settings(own).items() if value != plain[name]}
    return load(f"{PREFIX}{cls.__name__}", dict(sorted(given.items())))


def _settings(distance: Any) -> dict[str, Any]:
    """List the settings of a distance, by name."""
    names = _arguments(type(distance)).keys() - {*IGNORED_ARGUMENTS}
    return {name: getattr(distance, name) for name in names if isinstance(getattr(distance, name, None), PLAIN_KINDS)}
