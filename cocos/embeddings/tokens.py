"""Token vectors of queries and candidates, whose scores are MaxSim or XTR (late interaction)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cocos.base import annotations
from cocos.base.annotations import Groups
from cocos.base.errors import InputError, nearest, rows
from cocos.embeddings import UNGIVEN, marks, sources
from cocos.embeddings.batches import Batch
from cocos.embeddings.scored import DIRECTION, Scores
from cocos.embeddings.scores import Pairs, matched

# How the token similarities of a query and a candidate become one score.
SCORINGS = ("sum", "mean", "xtr")
# Token similarities in memory at once: 64 MiB in float32.
MAX_SIMILARITIES = 2**24
# Similarities of whole rows with all candidates that `ranked` reads at once.
RANKED_SCORES = 2**22


@dataclass(frozen=True, eq=False)
class Tokens:
    r"""Token vectors of queries and candidates; a query's positives are the candidates of its group.

    The score of a candidate is MaxSim, :math:`\sum_t \max_u \hat q_t \cdot \hat c_u` over the tokens t of the query and
    u of the candidate (cosines), or its mean over t. In XTR a similarity counts if it is among the `top` largest that
    the query token has with any token of the batch; a query token that has none in a candidate adds the smallest of
    these :math:`m_t` (an upper bound of what is missing), or nothing where `impute` is False.

    Queries ask, in batches that are drawn as those of `cocos.Embeddings`. Scores are computed for a batch, in blocks,
    and every measure that needs no vector of a row takes them.

    Args:
        query_tokens: (Q, T, D) floating point, or (sum of the lengths, D), one row behind the other.
        candidate_tokens: (C, U, D), or (sum, D), likewise.
        query_lengths: (Q,) number of tokens of each row, at least 1; None: all T of (Q, T, D).
        candidate_lengths: (C,) likewise.
        query_group: (Q,) whole numbers or text: ids that a query shares with its positives. Without groups row i
            matches row i.
        candidate_group: (C,) likewise.
        negatives: (Q, K) rows of the candidates that are a query's own hard negatives, -1 for none.
        scoring: `sum` over the query tokens (ColBERT), `mean`, or `xtr`.
        top: number of similarities of a query token that XTR retrieves, of equal ones all.
        impute: whether XTR sets a bound in the place of a similarity that was not retrieved, as its retrieval does; in
            training it is left out, and the score is the mean over the query tokens that are left.
        names: of the queries, and of the candidates, one text each; either may be None.
        notes: sentences that belong beside every result.
        marks: on pairs, by their names: see `cocos.marks.of`.
        dtype: of the scores; None: that of the tokens.

    Raises:
        InputError: lengths that do not add up, a row without a token, NaN or infinity, or a zero vector.

    Source: MaxSim: Khattab & Zaharia 2020, arXiv:2004.12832, eq. 3; XTR: Lee et al. 2023, arXiv:2304.01982, eq. 4, 5.

    Examples:
        The first document has both tokens of the query, the second one of them twice:

        >>> east, north = torch.eye(2)
        >>> query, documents = torch.stack([east, north])[None], torch.stack([north, east, east, east])
        >>> tokens = cocos.Tokens(query, documents, candidate_lengths=[2, 2], query_group=[0], candidate_group=[0, 1])
        >>> tokens.scores(torch.tensor([0]), torch.tensor([0, 1]))
        tensor([[2., 1.]])
        >>> tokens = cocos.Tokens(query.repeat(2, 1, 1), documents, candidate_lengths=[2, 2])
        >>> data = cocos.measures.count(tokens, cocos.losses.load("ntxent", temperature=1), batch_size="all")
        >>> data["contributing"].values.tolist()
        [[[1.0, 1.0]]]
    """

    query_tokens: Tensor
    candidate_tokens: Tensor
    query_lengths: Tensor = UNGIVEN
    candidate_lengths: Tensor = UNGIVEN
    query_group: Tensor = UNGIVEN
    candidate_group: Tensor = UNGIVEN
    negatives: Tensor | None = None
    scoring: str = "sum"
    top: int | None = None
    impute: bool = True
    names: tuple[Sequence[str] | None, Sequence[str] | None] | None = None
    notes: tuple[str, ...] = ()
    marks: dict[str, Any] | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        made: dict[str, Any] = {}
        for side in ("query", "candidate"):
            flat, lengths = _read(side, getattr(self, f"{side}_tokens"), getattr(self, f"{side}_lengths"))
            made |= {f"{side}_tokens": flat, f"{side}_lengths": lengths}
        query, candidate = made["query_tokens"], made["candidate_tokens"]
        if query.shape[1] != candidate.shape[1]:
            raise InputError(
                f"query_tokens have {query.shape[1]} dimensions and candidate_tokens {candidate.shape[1]}, expected as "
                "many"
            )
        if query.dtype != candidate.dtype or query.device != candidate.device:
            raise InputError(
                f"query_tokens are {query.dtype} on {query.device} and candidate_tokens {candidate.dtype} on "
                f"{candidate.device}, expected the same"
            )
        if self.scoring not in SCORINGS:
            raise InputError(nearest("scoring", self.scoring, SCORINGS))
        if (self.scoring == "xtr") != (self.top is not None) or (self.top is not None and self.top < 1):
            said = "top: None" if self.top is None else f"top: {self.top}"
            raise InputError(f"{said}, expected a number of similarities, at least 1, with scoring `xtr` and no other")
        sizes = len(made["query_lengths"]), len(made["candidate_lengths"])
        groups = annotations.both_groups(self.query_group, self.candidate_group, *sizes)
        made |= dict(zip(("query_group", "candidate_group"), (ids.to(query.device) for ids in groups), strict=True))
        named = self.negatives if self.negatives is None else torch.as_tensor(self.negatives)
        sides = made["query_group"], made["candidate_group"]
        made["negatives"] = annotations.negatives("negatives", named, *sides, ("query", "candidate"))
        if self.names is not None:
            pairs = zip(("query", "candidate"), self.names, sizes, strict=True)
            made["names"] = tuple(annotations.names(f"names of {side}", own, size) for side, own, size in pairs)
        self.__dict__.update(made, notes=tuple(self.notes), marks=marks.each(self.marks, *sizes))

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{side} {len(lengths)} rows of {int(lengths.min())} to {int(lengths.max())} tokens"
            for side, lengths in (("query", self.query_lengths), ("candidate", self.candidate_lengths))
        )
        how = self.scoring + (f" of the top {self.top}" if self.top else "")
        return f"Tokens({sizes}, {self.query_tokens.shape[1]} dimensions, {how})"

    # What a run asks of its source; candidates ask for nothing, for the score of late interaction has one direction.
    directions = (DIRECTION,)
    shared = proxies = is_queued = False
    candidate_negatives = candidate_variance = grades = pictures = teacher = queue = None
    mapped = ()

    @property
    def metric(self) -> str:
        """Name of the scores."""
        return {"sum": "MaxSim", "mean": "mean MaxSim", "xtr": "XTR"}[self.scoring]

    @cached_property
    def query(self) -> Tensor:
        """Mean token of each query, (Q, D), by which rows are told apart."""
        return _means(self.query_tokens, self.query_lengths)

    @cached_property
    def candidate(self) -> Tensor:
        """Mean token of each candidate, (C, D)."""
        return _means(self.candidate_tokens, self.candidate_lengths)

    @cached_property
    def groups(self) -> Groups:
        """The groups of both sides, numbered and counted."""
        return Groups.of(self.query_group, self.candidate_group)

    def unchanged(self) -> None:
        """Tokens are held in memory."""

    def single(self, direction: str) -> "Tokens":
        """The same tokens: there is one direction."""
        return self

    def marked(self, given: dict[str, Any] | None) -> "Tokens":
        """Give the pairs other marks, by their names."""
        return self.unchecked(marks=marks.each(given, len(self.query_lengths), len(self.candidate_lengths)))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Tokens":
        """Move to another device; scores get another dtype, in which tokens are read block by block."""
        made: dict[str, Any] = {"dtype": dtype or self.dtype}
        for each in fields(self):
            value = getattr(self, each.name)
            made |= {each.name: value.to(device)} if isinstance(value, Tensor) else {}
        return self.unchecked(**made)

    def unchecked(self, **values: Any) -> "Tokens":
        """The same tokens with other values of some fields, without a second check."""
        other = object.__new__(Tokens)
        other.__dict__.update({each.name: getattr(self, each.name) for each in fields(self)} | values)
        return other

    def rows(self, side: str, index: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors of the tokens of some rows, one row behind the other, (n, D), and their lengths.

        Args:
            side: `query` or `candidate`.
            index: the rows.
        """
        tokens, lengths = getattr(self, f"{side}_tokens"), getattr(self, f"{side}_lengths")
        own, first = lengths[index], (lengths.cumsum(0) - lengths)[index]
        begin = torch.repeat_interleave(first - (own.cumsum(0) - own), own)
        found = tokens[begin + torch.arange(len(begin), device=begin.device)]
        return torch.nn.functional.normalize(found.to(self.dtype or found.dtype), dim=1, eps=0), own

    def padded(self, side: str, index: Tensor) -> tuple[Tensor, Tensor]:
        """Raw vectors of the tokens of some rows, padded with 0 to the longest, (n, T, D), and where one is, (n, T)."""
        tokens, lengths = getattr(self, f"{side}_tokens"), getattr(self, f"{side}_lengths")
        own, first = lengths[index], (lengths.cumsum(0) - lengths)[index]
        place = torch.arange(int(own.max()), device=own.device)
        there = place < own[:, None]
        found = tokens[torch.where(there, first[:, None] + place, 0)]
        return torch.where(there[..., None], found.to(self.dtype or found.dtype), 0), there

    def scores(self, query_index: Tensor, candidate_index: Tensor) -> Tensor:
        """Scores of some queries with some candidates, (q, c), in blocks of at most `MAX_SIMILARITIES`.

        Args:
            query_index: (q,) rows.
            candidate_index: (c,) rows; the similarities that XTR retrieves are among their tokens.
        """
        most = int(self.candidate_lengths[candidate_index].max()) * len(candidate_index)
        step = max(1, MAX_SIMILARITIES // (most * int(self.query_lengths[query_index].max())))
        return torch.cat([self._block(part, candidate_index) for part in query_index.split(step)])

    def _block(self, query_index: Tensor, candidate_index: Tensor) -> Tensor:
        """Scores of few queries; candidates are cut where their tokens are too many."""
        query, lengths = self.rows("query", query_index)
        step = max(1, MAX_SIMILARITIES // (len(query) * int(self.candidate_lengths[candidate_index].max())))
        parts = candidate_index.split(step)
        least = self._least(query, parts) if self.scoring == "xtr" else None
        found = []
        for part in parts:
            candidate, own = self.rows("candidate", part)
            similar = candidate @ query.T
            if least is not None:
                similar = torch.where(similar >= least, similar, -torch.inf)
            found.append(segments(similar, own, "max"))
        best = torch.cat(found).T  # (tokens of the queries, candidates)
        if least is None:
            return segments(best, lengths, "mean" if self.scoring == "mean" else "sum")
        if self.impute:
            return segments(torch.where(best.isinf(), least[:, None], best), lengths, "mean")
        there = best.isfinite()
        total = segments(torch.where(there, best, 0), lengths, "sum")
        return total / segments(there.to(best.dtype), lengths, "sum").clamp(min=1)

    def _least(self, query: Tensor, parts: Sequence[Tensor]) -> Tensor:
        """Smallest similarity that each query token retrieves from some candidates, (tokens,)."""
        most = query.new_full((0, len(query)), 0.0)
        for part in parts:
            most = torch.cat([most, self.rows("candidate", part)[0] @ query.T])
            most = most.topk(min(self.top or 1, len(most)), dim=0).values
        return most[-1]

    def of_batch(self, batch: Batch, block: slice, same_group: str) -> Pairs:
        """Make the input of a loss of some queries of a batch."""
        index = batch.query_index[block]
        positive, negative = matched(self, batch, block, same_group)
        return Pairs(
            self.scores(index, batch.candidate_index),
            positive,
            negative,
            candidate_group=self.candidate_group[batch.candidate_index],
            source=sources.of_candidates(self, batch, index) if self.negatives is not None else None,
        )

    @property
    def asking(self) -> Tensor:
        """The queries that have a positive, on the host."""
        return (self.groups.candidates[self.groups.query] > 0).nonzero().flatten()

    def ranked(self) -> Iterator[Scores]:
        """Yield the scores of all queries that have a positive with all candidates, some queries at a time."""
        asking = self.asking.to(self.query_group.device)
        every = torch.arange(len(self.candidate_lengths), device=asking.device)
        for part in asking.split(max(1, RANKED_SCORES // len(every))):
            positive = self.query_group[part][:, None] == self.candidate_group[None]
            yield Scores(self.scores(part, every), positive, notes=())


# Sources of scores that have no vector for a row.
SCORED = (Scores, Tokens)


def segments(values: Tensor, lengths: Tensor, how: str) -> Tensor:
    """`max`, `sum` or `mean` over runs of rows of these lengths, (runs, n) from (rows, n)."""
    if bool((lengths == lengths[0]).all()):  # one reshape, several times as fast
        whole = values.view(len(lengths), -1, values.shape[1])
        return whole.amax(dim=1) if how == "max" else whole.mean(dim=1) if how == "mean" else whole.sum(dim=1)
    made: Tensor = torch.segment_reduce(values.contiguous(), how, lengths=lengths, axis=0)
    return made


def _means(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Mean of the tokens of each row, (rows, D), in float32 at least."""
    wide = tokens if tokens.dtype == torch.float64 else tokens.float()
    return segments(wide, lengths, "mean")


def _read(side: str, tokens: Any, lengths: Any) -> tuple[Tensor, Tensor]:
    """Tokens of one side, one row behind the other, and the number of each row."""
    name = f"{side}_tokens"
    try:
        found = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(tokens).__name__}, expected an array of numbers") from None
    shape = tuple(found.shape)
    if len(shape) not in {2, 3} or 0 in shape or not found.is_floating_point():
        raise InputError(
            f"{name}: {found.dtype} of shape {shape}, expected floating point (rows, tokens, dimensions), or "
            f"(tokens, dimensions) with {side}_lengths"
        )
    if lengths is None and len(shape) == 2:
        raise InputError(f"{name}: shape {shape} without {side}_lengths, which say how many tokens each row has")
    own = torch.full(shape[:1], shape[1]) if lengths is None else _whole(f"{side}_lengths", lengths)
    if lonely := (own < 1).nonzero().flatten().tolist():
        raise InputError(f"{side}_lengths: {int(own[lonely[0]])} in {rows(lonely)}, expected at least one token")
    if len(shape) == 3:
        if len(own) != shape[0] or int(own.max()) > shape[1]:
            raise InputError(
                f"{side}_lengths: {len(own)} of up to {int(own.max())}, expected {shape[0]} of at most {shape[1]}"
            )
        found = found[(torch.arange(shape[1]) < own[:, None]).to(found.device)]
    elif int(own.sum()) != shape[0]:
        raise InputError(f"{side}_lengths add up to {int(own.sum())}, and {name} has {shape[0]} tokens")
    of = torch.repeat_interleave(torch.arange(len(own)), own)
    for wrong, what in (
        (~found.isfinite(), "NaN or infinity"),
        (found == 0, "a zero vector, whose cosine is undefined,"),
    ):
        bad = wrong.any(dim=1) if what.startswith("NaN") else wrong.all(dim=1)
        if bad.any():
            padded = "" if what.startswith("NaN") or lengths is not None else f"; if it is padding, give {side}_lengths"
            raise InputError(f"{name}: {what} in {rows(of[bad.cpu()].unique().tolist())}{padded}")
    return found, own.to(found.device)


def _whole(name: str, values: Any) -> Tensor:
    """Whole numbers, (n,)."""
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(values).__name__}, expected whole numbers") from None
    if found.ndim != 1 or not len(found) or found.is_floating_point() or found.dtype == torch.bool:
        raise InputError(
            f"{name}: {found.dtype} of shape {tuple(found.shape)}, expected whole numbers, one for each row"
        )
    return found.long().cpu()
