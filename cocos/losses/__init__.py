"""The shelf of losses: one file per loss, found by its name."""

import dataclasses
import functools
import importlib
import pkgutil
import re
from typing import TYPE_CHECKING, Any, cast

from cocos.base import docstrings
from cocos.base.errors import InputError, nearest
from cocos.losses.base import Loss, SoftmaxLoss
from cocos.losses.parameters import accepted, build, fields, settled

if TYPE_CHECKING:  # found by `__getattr__`, since the names of the losses are listed without torch
    from cocos.losses.a_softmax import ASoftmax as ASoftmax
    from cocos.losses.adaface import AdaFace as AdaFace
    from cocos.losses.align_uniform import AlignUniform as AlignUniform
    from cocos.losses.angle import AnglE as AnglE
    from cocos.losses.arcface import ArcFace as ArcFace
    from cocos.losses.blackbox_ap import BlackBoxAP as BlackBoxAP
    from cocos.losses.bpr import BPR as BPR
    from cocos.losses.cbml import CBML as CBML
    from cocos.losses.ce_nm import CrossExampleNegativeMining as CrossExampleNegativeMining
    from cocos.losses.ce_softmax import CrossExampleSoftmax as CrossExampleSoftmax
    from cocos.losses.center_contrastive import CenterContrastive as CenterContrastive
    from cocos.losses.circle import Circle as Circle
    from cocos.losses.contextual import Contextual as Contextual
    from cocos.losses.contrastive import Contrastive as Contrastive
    from cocos.losses.contrastive_cosine import ContrastiveCosine as ContrastiveCosine
    from cocos.losses.contrastive_linear import ContrastiveLinear as ContrastiveLinear
    from cocos.losses.cosent import CoSENT as CoSENT
    from cocos.losses.cosface import CosFace as CosFace
    from cocos.losses.curricularface import CurricularFace as CurricularFace
    from cocos.losses.dcl import DCL as DCL
    from cocos.losses.dclw import DCLW as DCLW
    from cocos.losses.euclidean_softmax import EuclideanSoftmax as EuclideanSoftmax
    from cocos.losses.external.wrapped import semi_hard, skip_k, top_k
    from cocos.losses.fastap import FastAP as FastAP
    from cocos.losses.gbce import GBCE as GBCE
    from cocos.losses.generalized_lifted import GeneralizedLifted as GeneralizedLifted
    from cocos.losses.hcl import HCL as HCL
    from cocos.losses.hist import HIST as HIST
    from cocos.losses.kl_distill import KLDistill as KLDistill
    from cocos.losses.l2_softmax import L2Softmax as L2Softmax
    from cocos.losses.l_softmax import LSoftmax as LSoftmax
    from cocos.losses.lambdaloss import LambdaLoss as LambdaLoss
    from cocos.losses.lifted_structure import LiftedStructure as LiftedStructure
    from cocos.losses.linear_softmax import LinearSoftmax as LinearSoftmax
    from cocos.losses.listmle import ListMLE as ListMLE
    from cocos.losses.listwise_ap import ListwiseAP as ListwiseAP
    from cocos.losses.logq_softmax import LogQSoftmax as LogQSoftmax
    from cocos.losses.magface import MagFace as MagFace
    from cocos.losses.margin_mse import MarginMSE as MarginMSE
    from cocos.losses.mil_nce import MILNCE as MILNCE
    from cocos.losses.mnrl import MNRL as MNRL
    from cocos.losses.multi_similarity import MultiSimilarity as MultiSimilarity
    from cocos.losses.n_pair import NPair as NPair
    from cocos.losses.normalized_softmax import NormalizedSoftmax as NormalizedSoftmax
    from cocos.losses.ntxent import NTXent as NTXent
    from cocos.losses.proxy_anchor import ProxyAnchor as ProxyAnchor
    from cocos.losses.proxy_gml import ProxyGML as ProxyGML
    from cocos.losses.proxynca import ProxyNCA as ProxyNCA
    from cocos.losses.proxynca_pp import ProxyNCApp as ProxyNCApp
    from cocos.losses.ranknet import RankNet as RankNet
    from cocos.losses.recall_at_k import RecallAtK as RecallAtK
    from cocos.losses.sampled_softmax import SampledSoftmax as SampledSoftmax
    from cocos.losses.sgsl import SGSL as SGSL
    from cocos.losses.siglip import SigLIP as SigLIP
    from cocos.losses.smoothap import SmoothAP as SmoothAP
    from cocos.losses.smoothed_softmax import SmoothedSoftmax as SmoothedSoftmax
    from cocos.losses.snm import StochasticNegativeMining as StochasticNegativeMining
    from cocos.losses.softtriple import SoftTriple as SoftTriple
    from cocos.losses.subcenter_arcface import SubCenterArcFace as SubCenterArcFace
    from cocos.losses.sup_ap import SupAP as SupAP
    from cocos.losses.supcon import SupCon as SupCon
    from cocos.losses.triplet import Triplet as Triplet
    from cocos.losses.triplet_euclidean import TripletEuclidean as TripletEuclidean
    from cocos.losses.triplet_sh import TripletSH as TripletSH
    from cocos.losses.triplet_squared import TripletSquared as TripletSquared
    from cocos.losses.warped_softmax import WarpedSoftmax as WarpedSoftmax

__all__ = [
    "BEYOND_SCORES",
    "UNSPECIFIED",
    "Loss",
    "SoftmaxLoss",
    "adapted_name",
    "brought",
    "canonical",
    "counterpart",
    "known",
    "load",
    "module_name",
    "name_of",
    "names",
    "of",
    "parameters",
    "qualified",
    "reader_of",
    "semi_hard",
    "skip_k",
    "top_k",
]

COMMON = ("base", "parameters")  # files that are no losses
# Functions that make a loss of a loss, and their file in `external`.
BUILDERS = dict.fromkeys(("semi_hard", "skip_k", "top_k"), "wrapped")
# Prefixes of the losses of other libraries, with the file of `external` that reads them.
PREFIXES_OF_LIBRARIES = {"pml": "pml", "open_clip": "open_clip", "st": "st", "lightly": "lightly"}
PREFIXES_OF_LIBRARIES |= dict.fromkeys(("ce", "pylate", "colpali"), "named")
# Packages whose modules are recognised by their class.
ADAPTED_PACKAGES = {"pytorch_metric_learning": "pml", "sentence_transformers": "st"}
ADAPTED_PACKAGES |= {name: name for name in ("lightly", "open_clip")}


# Losses without a published formula, and why cocos does not compute them.
UNSPECIFIED = {"osap": "only its abstract could be read, and it has no published code, so its formula would be a guess"}
# Losses that no function of the scores of a query computes: name and spellings, without punctuation, and the reason.
BEYOND_SCORES = {
    "ibc intrabatch intrabatchconnections": (
        "a message-passing network, trained with the encoder, refines each embedding from the others of its batch, and "
        "a softmax classifies the result (Seidenschwarz et al. 2021, arXiv:2102.07753): without that network there is "
        "no gradient; normalized_softmax counts the classifier beside it"
    ),
    "quintuplet aoq adaptiveofflinequintuplet": (
        "two of the five rows of a pair are drawn from lists that a trained model made of the whole training set, and "
        "their scores of each other, without the query, enter a hinge (Chen et al. 2020, arXiv:2003.03669, as its "
        "published code has it); triplet_sh is the part within the batch, without its adaptive factor"
    ),
}
# Losses without negatives: name and spellings, without punctuation and the word loss, and the terms they have instead.
WITHOUT_NEGATIVES = {
    "vicreg": "it keeps up the variance of each dimension and draws their covariances to 0 (arXiv:2105.04906)",
    "barlowtwins barlow": "it draws the cross-correlations of the dimensions to the identity (arXiv:2103.03230)",
    "wmse": "it whitens the batch and draws positives together (arXiv:2007.06346)",
    "byol": "it draws the predictions of one network to the outputs of its moving average (arXiv:2006.07733)",
    "simsiam": "it draws the predictions of one view to the other, whose gradient is stopped (arXiv:2011.10566)",
}
GEOMETRY_COMMAND = "cocos evaluate FILE"


def _simplified(name: str) -> str:
    """Drop the differences between spellings of a name: case, hyphens, spaces, the word loss at its end.

    Examples:
        >>> cocos.losses._simplified("NT-Xent loss"), cocos.losses._simplified("ProxyNCA++")
        ('ntxent', 'proxyncapp')
    """
    letters = re.sub(r"[^a-z0-9]", "", name.lower().replace("++", "pp"))
    return letters.removesuffix("loss") or letters


def _also_called(cls: type) -> list[tuple[str, dict[str, str]]]:
    """Other names of a loss, listed in its docstring after `Also called:`, with the parameters that each implies.

    Examples:
        >>> ("CLIP loss", {"temperature": "0.07"}) in cocos.losses._also_called(cocos.losses.ntxent.NTXent)
        True
    """
    said = docstrings.sections(cls).get("Also called", "")
    return [(name, dict(re.findall(r"(\w+)=([\w.]+)", remark))) for name, remark in docstrings.listed(said)]


def _refuse_uncounted(name: str) -> None:
    """Refuse a loss that cocos knows and does not compute, in any spelling."""
    module = name.strip().lower().replace("-", "_")
    if module in UNSPECIFIED:
        raise InputError(f"loss {name!r} is unspecified: {UNSPECIFIED[module]}")
    for spellings, reason in BEYOND_SCORES.items():
        if re.sub(r"[^a-z]", "", module).removesuffix("loss") in spellings.split():
            raise InputError(f"loss {name!r} is no function of the scores of a query: {reason}")
    for spellings, terms in WITHOUT_NEGATIVES.items():
        if re.sub(r"[^a-z]", "", module).removesuffix("loss") in spellings.split():
            raise InputError(
                f"loss {name!r} has no negatives, so there is nothing to count: {terms}; {GEOMETRY_COMMAND} gives the "
                "alignment, uniformity and effective rank of its embeddings"
            )


def names() -> list[str]:
    """Names of all losses on the shelf.

    Examples:
        >>> "ntxent" in cocos.losses.names()
        True
    """
    return list(_files(tuple(__path__)))


@functools.cache
def _files(folders: tuple[str, ...]) -> list[str]:
    return sorted(
        m.name for m in pkgutil.iter_modules(folders) if not (m.ispkg or m.name.startswith("_") or m.name in COMMON)
    )


@functools.cache
def _known_names() -> dict[str, tuple[str, dict[str, str]]]:
    """Map the other names of the losses, listed on their cards, to their file and the parameters they imply."""
    found: dict[str, tuple[str, dict[str, str]]] = {_simplified(name): (name, {}) for name in names()}
    for module in names():
        for name, implied in _also_called(_class_of_file(module)):
            found.setdefault(_simplified(name), (module, implied))
    return found


def module_name(name: str) -> str:
    """File name of a loss; a hyphen may replace an underscore, and any name on its card is understood.

    Raises:
        InputError: no such loss (the nearest one is named), or one without a known formula or without negatives.

    Examples:
        >>> cocos.losses.module_name("InfoNCE")
        'ntxent'
    """
    module = name.strip().lower().replace("-", "_")
    if module in names():
        return module
    _refuse_uncounted(name)
    if module.endswith(".py"):
        raise InputError(f"loss {name!r} is a file: name the function or class in it, like {name}:my_loss")
    known = _known_names()
    if _simplified(name) not in known:
        raise InputError(nearest("loss", name, names()))
    return known[_simplified(name)][0]


def brought(name: str) -> dict[str, str]:
    """Parameters that an alias implies: `MultipleNegativesRankingLoss` is NT-Xent with a temperature of 0.05.

    They are defaults: given or recorded values replace them.

    Examples:
        >>> cocos.losses.brought("ClipLoss")
        {'temperature': '0.07'}
    """
    if name.strip().lower().replace("-", "_") in names() or _file_of_spelling(name.strip()):
        return {}
    return dict(_known_names().get(_simplified(name), ("", {}))[1])


def _class_of_file(module: str) -> type:
    """Import the one class that a file defines."""
    found = importlib.import_module(f"{__name__}.{module}")
    cls: Any
    own = (each for each in vars(found).values() if isinstance(each, type) and each.__module__ == found.__name__)
    (cls,) = (each for each in own if not each.__name__.startswith("_"))
    return cast(type, cls)


def _class(name: str) -> type:
    return _class_of_file(module_name(name))


def reader_of(name: str) -> str | None:
    """Choose the file of `external` that reads this spelling; None for the shelf.

    Examples:
        >>> cocos.losses.reader_of("my_losses.py:infonce")
        'own'
    """
    if name.endswith("++"):
        return None  # VSE++ is a name
    if set(name) & set("+*") and importlib.import_module(f"{__name__}.external.sum").terms_of(name):
        return "sum"
    if name.endswith(")") and importlib.import_module(f"{__name__}.external.wrapped").parted(name):
        return "wrapped"
    if ":" in name:
        return PREFIXES_OF_LIBRARIES.get(name.partition(":")[0].strip().lower(), "own")
    return None


def _file_of_spelling(name: str) -> Any | None:
    """The file that reads this spelling; None for the shelf."""
    kind = reader_of(name)
    return importlib.import_module(f"{__name__}.external.{kind}") if kind else None


def canonical(name: str) -> str:
    """The one spelling of a loss, as `name_of` returns it.

    Raises:
        InputError: no such loss on the shelf or in pytorch-metric-learning, or a sum that is not one.

    Examples:
        >>> cocos.losses.canonical("Multi-Similarity")
        'multi_similarity'
    """
    reader = _file_of_spelling(name.strip())
    return reader.canonical(name.strip()) if reader else module_name(name)


def known(name: str) -> set[str] | None:
    """Names of the parameters of a loss, those of a sum with the name of the term before each; None: any.

    Raises:
        InputError: there is no such loss.

    Examples:
        >>> sorted(cocos.losses.known("ntxent"))
        ['scale', 'temperature']
    """
    reader = _file_of_spelling(name.strip())
    if reader:
        return reader.known(name.strip())
    return accepted(_class(name))


def counterpart(name: str) -> str | None:
    """Name of the loss of the shelf whose recorded parameters a loss of another library takes; None: none is.

    Examples:
        >>> cocos.losses.counterpart("open_clip:ClipLoss")
        'ntxent'
    """
    reader = _file_of_spelling(name.strip())
    found = getattr(reader, "library", None)
    return found.counterpart(name.strip()) if found else None


def adapted_name(name: str) -> str | None:
    """The name with a prefix of a class that is named by its module, if it is adapted; None: it is not.

    Examples:
        >>> cocos.losses.adapted_name("open_clip.loss:ClipLoss")
        'open_clip:ClipLoss'
    """
    place, _, cls = name.partition(":")
    file = ADAPTED_PACKAGES.get(place.partition(".")[0]) if "." in place else None
    prefix = next((prefix for prefix, read in PREFIXES_OF_LIBRARIES.items() if read == file), None)
    try:
        return canonical(f"{prefix}:{cls}") if prefix else None
    except InputError:
        return None


def qualified(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as `parameters(load(name))` names them: in a sum with the name of the term before each.

    Raises:
        InputError: no term has it, or more than one.

    Examples:
        >>> cocos.losses.qualified("triplet+ntxent", {"margin": 0.1})
        {'triplet.margin': 0.1}
    """
    reader = _file_of_spelling(name.strip())
    if reader:
        return reader.qualified(name.strip(), parameters)
    return settled(name, _class(name), parameters)


def name_of(loss: Loss) -> str:
    """The name of a loss, as `load` takes it; the class of one that was never loaded.

    Examples:
        >>> cocos.losses.name_of(cocos.losses.load("InfoNCE"))
        'ntxent'
    """
    return loss.name


def parameters(loss: Loss) -> dict[str, Any]:
    """The parameters of a loss by their names in the literature.

    In a sum they are prefixed by the name of their term. For your own loss only the given ones are known.

    Examples:
        >>> cocos.losses.parameters(cocos.losses.load("ntxent"))
        {'temperature': 0.1}
    """
    if loss.given is not None:
        return dict(loss.given)
    if not dataclasses.is_dataclass(loss):
        return {}
    return {name: getattr(loss, field.name) for name, field in fields(type(loss)).items()}


def load(name: str, parameters: dict[str, Any] | None = None, **named: Any) -> Loss:
    """Build a loss from its name and parameters, to be called with Pairs or, in training, with tensors.

    Args:
        name: a file of the shelf, e.g. `ntxent`, or an alias on its card, e.g. `InfoNCE`; your own loss,
            `package.module:attribute` or `file.py:attribute`; one of another library, `pml:CircleLoss` or
            `open_clip:ClipLoss`; a sum of such, `triplet+0.5*contrastive_cosine`; or one of some negatives,
            `top_k(ntxent)`, `skip_k(...)`, `semi_hard(...)`, see `top_k`.
        parameters: its fields or arguments, as numbers or as text; omitted ones have the paper's value. In a sum
            `triplet.margin` belongs to the term triplet, and `margin` to the only term that has one. A loss with a
            temperature also accepts `scale`, 1/temperature.
        named: the same as keywords; a dict also names those with a point in them.

    Raises:
        InputError: an unknown loss or parameter (the nearest one is named), a value out of range, a parameter that is
            given twice, or a loss of yours that cannot be read.

    Examples:
        >>> cocos.losses.load("ntxent", temperature=0.07)
        NTXent(temperature=0.07)
        >>> cocos.losses.load("InfoNCE", {"scale": 10})
        NTXent(temperature=0.1)

        `(scores, positive, negative)` trains a model in one line; without `negative`, all other pairs are negative:

        >>> triplet = cocos.losses.load("triplet", {"margin": 0.25})
        >>> triplet(torch.tensor([[0.75, 0.75, 0.0]]), torch.tensor([[True, False, False]]))
        tensor([0.2500])
    """
    if twice := sorted(named.keys() & (parameters or {}).keys()):
        raise InputError(f"{name}: {', '.join(twice)} in the dict of parameters and as a keyword; give it once")
    name, parameters = name.strip(), dict(parameters or {}) | named
    reader = _file_of_spelling(name)
    if reader:
        return cast(Loss, reader.load(name, parameters))
    cls = _class(name)
    return cast(Loss, build(module_name(name), cls, brought(name) | settled(name, cls, parameters)))


def of(loss: Any) -> Loss:
    """Make a loss of any object: a loss is returned as it is, a function, class or module is wrapped.

    A module of a library that `load` knows by its prefix is recognised by its class, and keeps its own settings.

    Raises:
        InputError: it cannot be a loss.

    Examples:
        A function of the scores and masks becomes a loss with autograd's weights:

        >>> def softest(scores, positive, negative):
        ...     return (scores * negative).sum(dim=1)
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.of(cocos.losses.of(softest), pairs)
        tensor([[0., 1., 1.]])
    """
    if isinstance(loss, Loss):
        return loss
    named = loss if hasattr(loss, "__qualname__") else type(loss)
    package = str(named.__module__).partition(".")[0]
    if not isinstance(loss, type) and package in ADAPTED_PACKAGES:
        module = importlib.import_module(f"{__name__}.external.{ADAPTED_PACKAGES[package]}")
        if (adapted := module.of(loss)) is not None:
            return cast(Loss, adapted)
    own = importlib.import_module(f"{__name__}.external.own")
    return cast(Loss, own.of(loss, f"{named.__module__}:{named.__qualname__}", {}))


def _classes() -> dict[str, str]:
    """Map the class of each loss of the shelf to its file, which is imported."""
    return {_class_of_file(name).__name__: name for name in names()}


def __getattr__(name: str) -> Any:
    """`cocos.losses.ntxent` and `cocos.losses.NTXent` without an import statement, and the functions that wrap a loss.

    Raises:
        AttributeError: there is no such loss.
    """
    if file := BUILDERS.get(name):
        return getattr(importlib.import_module(f"{__name__}.external.{file}"), name)
    file = name if name in names() else _classes().get(name) if name[:1].isupper() else None
    if file:
        cls = _class_of_file(file)
        return cls if name == cls.__name__ else importlib.import_module(f"{__name__}.{file}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, the files of the shelf and their classes."""
    return sorted({*__all__, *names(), *_classes()})
