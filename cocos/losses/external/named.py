"""Losses of libraries that score no embeddings, by their names: each is a closed form of the shelf.

`ce:` are the losses of cross-encoders of sentence-transformers, `pylate:` and `colpali:` those of late interaction.
They read scores, which a file has; the library need not be installed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cocos import losses
from cocos.base.errors import InputError, nearest


@dataclass(frozen=True)
class NamedLoss:
    """A loss of a library, and the loss of the shelf with the same weights, up to one factor of the batch.

    Args:
        loss: of the shelf, as `cocos.losses.load` takes it.
        given: its parameters where the library's defaults differ.
        renamed: parameter of the library -> that of the shelf.
        words: value in the library, in words -> that of the shelf.
        reads: its scores, and what else the closed form depends on, where it is not plain.

    Examples:
        >>> NamedLoss("ntxent", {"temperature": 0.02}).loss
        'ntxent'
    """

    loss: str
    given: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    reads: str = ""


WEIGHTING_SCHEMES = {"NDCGLoss1Scheme": "ndcg1", "NDCGLoss2Scheme": "ndcg2", "NDCGLoss2PPScheme": "ndcg2pp"}
RANKING_OF_PROBABILITIES = NamedLoss(
    "ntxent", {"temperature": 0.1}, reads="scores after its Sigmoid, as `predict` has them"
)
OF_THE_TERM = {"temperature": "ntxent.temperature"}
MEAN_MAXSIM = "MaxSim per token of the query (normalize_scores), else MaxSim"
# Library -> name of a loss there -> loss of the shelf. Defaults of sentence-transformers 6.2, PyLate 1.0 and
# colpali-engine 0.3.18, with which tests/test_named.py compares them.
NAMES_OF_LIBRARIES: dict[str, dict[str, NamedLoss]] = {
    "ce": {
        "BinaryCrossEntropyLoss": NamedLoss("siglip", {"scale": 1.0, "bias": 0.0}, reads="logits, before any Sigmoid"),
        "LambdaLoss": NamedLoss(
            "lambdaloss",
            {},
            {"sigma": "scale", "weighting_scheme": "scheme"},
            WEIGHTING_SCHEMES | {"LambdaRankScheme": "lambdarank"},
        ),
        "RankNetLoss": NamedLoss("ranknet", {}, {"sigma": "scale"}),
        "ListNetLoss": NamedLoss("kl_distill", {"temperature": 1.0}),
        "ListMLELoss": NamedLoss("listmle", reads="grades without ties; it draws ties in the order of the input"),
        "MarginMSELoss": NamedLoss("margin_mse"),
        "MultipleNegativesRankingLoss": RANKING_OF_PROBABILITIES,
        "CachedMultipleNegativesRankingLoss": RANKING_OF_PROBABILITIES,
    },
    "pylate": {
        "Contrastive": NamedLoss("ntxent", {"temperature": 1.0}, reads="MaxSim"),
        "CachedContrastive": NamedLoss("ntxent", {"temperature": 1.0}, reads="MaxSim"),
        "Distillation": NamedLoss("kl_distill", {"temperature": 1.0}, reads="MaxSim, with normalize_scores=False"),
    },
    "colpali": {
        "BiEncoderLoss": NamedLoss("ntxent", {"temperature": 0.02}),
        "BiPairwiseCELoss": NamedLoss("top_k(ntxent)", {"k": 1, "temperature": 0.02}, OF_THE_TERM),
        "BiSigmoidLoss": NamedLoss("siglip", {"scale": 50.0, "bias": 0.0}),
        "ColbertLoss": NamedLoss("ntxent", {"temperature": 0.02}, reads=MEAN_MAXSIM),
        "ColbertPairwiseCELoss": NamedLoss(
            "top_k(ntxent)", {"k": 1, "temperature": 1.0}, OF_THE_TERM, reads=MEAN_MAXSIM
        ),
        "ColbertSigmoidLoss": NamedLoss("siglip", {"scale": 50.0, "bias": 0.0}, reads=MEAN_MAXSIM),
    },
}
TWO_TERMS = "it adds a term of own hard negatives to one of the batch; count the two on their own candidates"
# Library -> name -> why its negatives are not counted.
NAMES_REFUSED: dict[str, dict[str, str]] = {
    "ce": {
        "CrossEntropyLoss": "it classifies pairs, so it has no negatives to count",
        "MSELoss": "it compares each score with that of a teacher, so it has no negatives to count",
        "PListMLELoss": "it weighs the draws of ce:ListMLELoss by their place, and is not on the shelf",
    },
    "pylate": {},
    "colpali": {
        "BiPairedEncoderLoss": "it is open_clip:ClipLoss, of both directions, at logit_scale 50",
        **dict.fromkeys(
            ("BiNegativeCELoss", "BiPairwiseNegativeCELoss", "ColbertNegativeCELoss", "ColbertPairwiseNegativeCELoss"),
            TWO_TERMS,
        ),
    },
}


def _row(spelling: str) -> tuple[str, str, NamedLoss]:
    """Library, name as it writes it, and row; capitals do not matter, nor does the ending `Loss`."""
    prefix, _, given = (part.strip() for part in spelling.partition(":"))
    library, name = prefix.lower(), given.lower().replace("-", "_")
    for known in (*NAMES_OF_LIBRARIES[library], *NAMES_REFUSED[library]):
        if name in {known.lower(), known.lower().removesuffix("loss")}:
            if known in NAMES_REFUSED[library]:
                raise InputError(f"loss {library}:{known}: {NAMES_REFUSED[library][known]}")
            return library, known, NAMES_OF_LIBRARIES[library][known]
    raise InputError(nearest(f"loss of {library}", given, NAMES_OF_LIBRARIES[library]))


def canonical(spelling: str) -> str:
    """The name as the library writes it, by which its parameters are read.

    Examples:
        >>> canonical("CE:lambda")
        'ce:LambdaLoss'
    """
    return ":".join(_row(spelling)[:2])


def known(spelling: str) -> set[str] | None:
    """Names of its parameters, in the library and on the shelf."""
    row = _row(spelling)[2]
    own = losses.parameter_names(row.loss)
    return None if own is None else {*row.renamed, *own}


def qualified(spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters under the names of the shelf.

    Examples:
        >>> qualified("ce:LambdaLoss", {"sigma": 2.0, "weighting_scheme": "LambdaRankScheme"})
        {'scale': 2.0, 'scheme': 'lambdarank'}
    """
    library, name, row = _row(spelling)
    accepted, found = known(spelling), {}
    for key, given in parameters.items():
        if accepted is not None and key not in accepted:
            raise InputError(nearest(f"parameter of {library}:{name}", key, accepted))
        own = row.renamed.get(key, key)
        if own in found:
            raise InputError(f"parameter {own} of {library}:{name} is given twice")
        found[own] = row.words.get(given, given) if isinstance(given, str) else given
    return losses.qualify(row.loss, found)


def load(spelling: str, given: dict[str, Any]) -> losses.Loss:
    """Build the loss of the shelf, with the library's defaults.

    Examples:
        >>> load("colpali:BiSigmoidLoss", {"scale": 20})
        SigLIP(scale=20.0, bias=0.0)
    """
    row = _row(spelling)[2]
    return losses.load(row.loss, losses.qualify(row.loss, dict(row.given)) | qualified(spelling, given))
