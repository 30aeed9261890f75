"""Losses with the faults of public threads, each beside its right twin, in words and code of our own.

All are functions of queries and candidates, (N, D) each, candidate i belonging to query i, and of hard negatives
(N, K, D). What several processes do is computed in one: each process holds an equal part of the rows, and the gradients
of the processes are averaged, as DistributedDataParallel does.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize, softplus

PROCESSES, MINI_BATCHES = 2, 4
SCALE = 10.0  # of all scores: temperature 0.1
CLIP_TEMPERATURE = 0.07  # with which CLIP begins


def unit(rows: Tensor) -> Tensor:
    """Rows divided by their norms."""
    return normalize(rows, dim=-1)


def logits(query: Tensor, candidate: Tensor) -> Tensor:
    """Cosines times the scale, (Q, C)."""
    return SCALE * unit(query) @ unit(candidate).T


def shares(number: int, parts: int) -> list[slice]:
    """Equal ranges of rows."""
    size = number // parts
    return [slice(start, start + size) for start in range(0, number, size)]


def both_ways(query: Tensor, candidate: Tensor) -> Tensor:
    """Symmetric cross-entropy, as CLIP has it."""
    target = torch.arange(len(query))
    scores = logits(query, candidate)
    return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2


def gathered_columns(query: Tensor, candidate: Tensor, negatives: Tensor | None, *, by_process: bool) -> Tensor:
    """Cross-entropy over columns gathered from processes: all positives first, or all columns of a process first."""
    columns = [candidate, *(() if negatives is None else negatives.unbind(dim=1))]
    parts = shares(len(query), PROCESSES)
    rows = [column[part] for part in parts for column in columns]
    if not by_process:
        rows = [column[part] for column in columns for part in parts]
    scores = logits(query, torch.cat(rows))
    return cross_entropy(scores, torch.arange(len(query)))


def misaligned_gather(query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
    """The columns stand process by process; the targets assume that all positives come first."""
    return gathered_columns(query, candidate, negatives, by_process=True)


def aligned_gather(query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Each column is gathered by itself."""
    return gathered_columns(query, candidate, negatives, by_process=False)


def tiled_hinge(query: Tensor, candidate: Tensor) -> list[Tensor]:
    """Hinge with the hardest negative, margin 1, of each mini-batch of anchors: its mean over these anchors."""
    tiles = []
    for part in shares(len(query), MINI_BATCHES):
        cosines = unit(query[part]) @ unit(candidate).T
        own = torch.arange(part.start, part.stop)[:, None] == torch.arange(len(candidate))
        hardest = cosines.masked_fill(own, -math.inf).amax(dim=1)
        tiles.append((1 - cosines[own] + hardest).clamp(min=0).mean())
    return tiles


def lost_mini_batches(query: Tensor, candidate: Tensor) -> Tensor:
    """A mini-batch goes backward if rows follow it; its end is compared with its own length, so that none ever does."""
    return tiled_hinge(query, candidate)[-1]


def kept_mini_batches(query: Tensor, candidate: Tensor) -> Tensor:
    """The gradients of all mini-batches add up to that of their mean."""
    return torch.stack(tiled_hinge(query, candidate)).mean()


def guide(rows: Tensor) -> Tensor:
    """A frozen guide: directions of the rows in some of their coordinates."""
    return unit(rows.detach()[:, :5])


def guided(query: Tensor, candidate: Tensor, offsets: Callable[[slice], int], parts: int = PROCESSES) -> Tensor:
    """Cross-entropy, in mini-batches, without candidates that the guide scores above the query's own."""
    values = []
    for part in shares(len(query), parts):
        opinion = guide(query[part]) @ guide(candidate).T
        own = opinion.diagonal(offset=offsets(part))[: len(opinion), None]
        target = torch.arange(part.start, part.stop)
        kept = (opinion <= own) | (torch.arange(len(candidate)) == target[:, None])
        values.append(cross_entropy(logits(query[part], candidate).masked_fill(~kept, -1e4), target))
    return torch.stack(values).mean()


def guide_without_offset(query: Tensor, candidate: Tensor) -> Tensor:
    """Every mini-batch compares with the guide's scores of the first one."""
    return guided(query, candidate, lambda part: 0)


def guide_with_offset(query: Tensor, candidate: Tensor) -> Tensor:
    """The diagonal begins at the first row of the mini-batch."""
    return guided(query, candidate, lambda part: part.start)


def guide_whole(query: Tensor, candidate: Tensor) -> Tensor:
    """The same loss without mini-batches."""
    return guided(query, candidate, lambda part: 0, parts=1)


def gathered(rows: Tensor, part: slice, *, with_gradient: bool) -> Tensor:
    """All rows as one process sees them: without gradient its own rows have one, the others have none."""
    if with_gradient:
        return rows
    return torch.cat([rows[: part.start].detach(), rows[part], rows[part.stop :].detach()])


def every_process_the_whole(query: Tensor, candidate: Tensor, factor: float) -> Tensor:
    """Each process has the loss of all rows, of which its own alone have a gradient."""
    values = []
    for part in shares(len(query), PROCESSES):
        sides = (gathered(side, part, with_gradient=False) for side in (query, candidate))
        asking, asked = sides
        values.append(factor * cross_entropy(logits(asking, asked), torch.arange(len(query))))
    return torch.stack(values).mean()


def averaged_away(query: Tensor, candidate: Tensor) -> Tensor:
    """Averaging over the processes divides what each of them has of its own rows alone."""
    return every_process_the_whole(query, candidate, 1.0)


def times_the_world(query: Tensor, candidate: Tensor) -> Tensor:
    """Multiplied by the number of processes."""
    return every_process_the_whole(query, candidate, float(PROCESSES))


def local_clip(query: Tensor, candidate: Tensor, *, with_gradient: bool) -> Tensor:
    """Each process has the loss of its own images and of its own texts."""
    values = []
    for part in shares(len(query), PROCESSES):
        target = torch.arange(part.start, part.stop)
        images, texts = (gathered(side, part, with_gradient=with_gradient) for side in (query, candidate))
        asking = cross_entropy(logits(query[part], texts), target)
        asked = cross_entropy(logits(candidate[part], images), target)
        values.append((asking + asked) / 2)
    return torch.stack(values).mean()


def local_loss_alone(query: Tensor, candidate: Tensor) -> Tensor:
    """A local loss whose gathered rows have no gradient."""
    return local_clip(query, candidate, with_gradient=False)


def local_loss_and_gradient(query: Tensor, candidate: Tensor) -> Tensor:
    """A local loss, gathered with gradient."""
    return local_clip(query, candidate, with_gradient=True)


def views(query: Tensor, candidate: Tensor, partner: Tensor, order: Tensor) -> Tensor:
    """NT-Xent over both views: all other rows are candidates, `partner` is the positive of each row in this order."""
    rows = torch.cat([query, candidate])[order]
    scores = logits(rows, rows).masked_fill(torch.eye(len(rows), dtype=torch.bool), -math.inf)
    return cross_entropy(scores, partner)


def two_views(query: Tensor, candidate: Tensor) -> Tensor:
    """NT-Xent over both views of one batch."""
    number = len(query)
    return views(query, candidate, torch.arange(2 * number).roll(number), torch.arange(2 * number))


def views_by_process(number: int) -> Tensor:
    """Rows of both views as processes concatenate them before they gather: first view, second view, first view, ..."""
    parts = shares(number, PROCESSES)
    return torch.cat([torch.arange(number)[part] + shift for part in parts for shift in (0, number)])


def views_mixed_up(query: Tensor, candidate: Tensor) -> Tensor:
    """The mask of positives assumes all first views, then all second views."""
    number = len(query)
    return views(query, candidate, torch.arange(2 * number).roll(number), views_by_process(number))


def views_in_order(query: Tensor, candidate: Tensor) -> Tensor:
    """Each view is gathered by itself; here, the positive of a row is looked up in the order that there is."""
    order = views_by_process(len(query))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return views(query, candidate, place[(order + len(query)) % len(order)], order)


def signed_logits(query: Tensor, candidate: Tensor, bias: float = 0.0) -> Tensor:
    """Logits of pairs, negated where they do not belong together."""
    scores = logits(query, candidate) + bias
    return torch.where(torch.eye(len(scores), dtype=torch.bool), scores, -scores)


def sigmoid_upside_down(query: Tensor, candidate: Tensor) -> Tensor:
    """Softplus of the signed logits."""
    return softplus(signed_logits(query, candidate)).sum() / len(query)


def sigmoid_upright(query: Tensor, candidate: Tensor) -> Tensor:
    """Softplus of minus the signed logits."""
    return softplus(-signed_logits(query, candidate)).sum() / len(query)


def sigmoid_mean_of_pairs(query: Tensor, candidate: Tensor) -> Tensor:
    """A mean over all pairs, divided by the number of queries once more."""
    return -logsigmoid(signed_logits(query, candidate, bias=-10.0)).mean() / len(query)


def sigmoid_sum_of_pairs(query: Tensor, candidate: Tensor) -> Tensor:
    """A sum over all pairs, divided by the number of queries."""
    return -logsigmoid(signed_logits(query, candidate, bias=-10.0)).sum() / len(query)


def graded(query: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of graded pairs, and their grades: 0 and 1 in turn."""
    return SCALE * (unit(query) * unit(candidate)).sum(dim=1), torch.arange(len(query)) % 2


def cosent_of_the_page(query: Tensor, candidate: Tensor) -> Tensor:
    """The formula of the documentation as it stood: the score of the better pair minus that of the worse one."""
    scores, grade = graded(query, candidate)
    above = (scores[:, None] - scores)[grade[:, None] > grade]
    return torch.cat([above.new_zeros(1), above]).logsumexp(dim=0)


def cosent_of_the_code(query: Tensor, candidate: Tensor) -> Tensor:
    """The score of the worse pair minus that of the better one."""
    scores, grade = graded(query, candidate)
    below = (scores[:, None] - scores)[grade[:, None] < grade]
    return torch.cat([below.new_zeros(1), below]).logsumexp(dim=0)


def cosent_pair_by_pair(query: Tensor, candidate: Tensor) -> Tensor:
    """CoSENT from its definition, log(1 + Σ exp(worse - better)), pair by pair."""
    scores, grade = graded(query, candidate)
    total = scores.new_ones(())
    for better in range(len(grade)):
        for worse in range(len(grade)):
            if grade[worse] < grade[better]:
                total = total + (scores[worse] - scores[better]).exp()
    return total.log()


def decoupled(query: Tensor, candidate: Tensor, *, together: bool) -> Tensor:
    """DCL with negatives of both views, under one logarithm or under two."""
    own = torch.eye(len(query), dtype=torch.bool)
    across, within = logits(query, candidate), logits(query, query)
    sides = [each.masked_fill(own, -math.inf) for each in (within, across)]
    parts = [torch.cat(sides, dim=1)] if together else sides
    return (torch.stack([each.logsumexp(dim=1) for each in parts]).sum(dim=0) - across.diagonal()).mean()


def two_logarithms(query: Tensor, candidate: Tensor) -> Tensor:
    """The logarithms of both views are added."""
    return decoupled(query, candidate, together=False)


def one_logarithm(query: Tensor, candidate: Tensor) -> Tensor:
    """One logarithm of all negatives."""
    return decoupled(query, candidate, together=True)


def dcl_row_by_row(query: Tensor, candidate: Tensor) -> Tensor:
    """DCL from its definition, row by row."""
    values = []
    for row in range(len(query)):
        others = [other for other in range(len(query)) if other != row]
        rows = torch.cat([query[others], candidate[others]])
        asking = query[row : row + 1]
        values.append(logits(asking, rows).exp().sum().log() - logits(asking, candidate)[0, row])
    return torch.stack(values).mean()


def whitened(rows: Tensor) -> Tensor:
    """Columns with mean 0 and deviation 1 over the batch."""
    return (rows - rows.mean(dim=0)) / rows.std(dim=0, correction=0)


def barlow(correlation: Tensor) -> Tensor:
    """Squared distance of a cross-correlation from the identity, off the diagonal with a factor."""
    own = torch.eye(len(correlation), dtype=torch.bool)
    return torch.where(own, (correlation - 1).square(), 0.005 * correlation.square()).sum()


def barlow_whole(query: Tensor, candidate: Tensor) -> Tensor:
    """Barlow Twins of one batch."""
    return barlow(whitened(query).T @ whitened(candidate) / len(query))


def barlow_reduced(query: Tensor, candidate: Tensor, *, with_gradient: bool) -> Tensor:
    """Each process adds its part of the cross-correlation; the sum has the gradients of all parts, or of its own."""
    first, second = whitened(query), whitened(candidate)
    parts = [first[part].T @ second[part] / len(query) for part in shares(len(query), PROCESSES)]
    values = []
    for own in parts:
        total = torch.stack(parts).sum(dim=0)
        values.append(barlow(total if with_gradient else own + (total - own).detach()))
    return torch.stack(values).mean()


def reduced_without_gradient(query: Tensor, candidate: Tensor) -> Tensor:
    """`all_reduce` of a collective without backward."""
    return barlow_reduced(query, candidate, with_gradient=False)


def reduced_with_gradient(query: Tensor, candidate: Tensor) -> Tensor:
    """`all_reduce` whose backward is one too."""
    return barlow_reduced(query, candidate, with_gradient=True)


def scaled(query: Tensor, candidate: Tensor, scale: float) -> Tensor:
    """Cross-entropy of cosines times a scale."""
    return cross_entropy(scale * unit(query) @ unit(candidate).T, torch.arange(len(query)))


def scale_as_it_is_stored(query: Tensor, candidate: Tensor) -> Tensor:
    """The parameter, a logarithm of the scale, multiplies the scores."""
    return scaled(query, candidate, math.log(1 / CLIP_TEMPERATURE))


def scale_exponentiated(query: Tensor, candidate: Tensor) -> Tensor:
    """Its exponential does."""
    return scaled(query, candidate, math.exp(math.log(1 / CLIP_TEMPERATURE)))


def own_group(query: Tensor, candidate: Tensor, negatives: Tensor) -> Tensor:
    """Scores of each query with its own candidate and its own hard negatives, (Q, 1 + K)."""
    group = torch.cat([candidate[:, None], negatives], dim=1)
    return SCALE * torch.einsum("qd,qkd->qk", unit(query), unit(group))


def only_own_negatives(query: Tensor, candidate: Tensor, negatives: Tensor) -> Tensor:
    """Cross-entropy within the group of each query, whose first row is its candidate."""
    return cross_entropy(own_group(query, candidate, negatives), torch.zeros(len(query), dtype=torch.int64))


def first_group_for_all(query: Tensor, candidate: Tensor, negatives: Tensor) -> Tensor:
    """A product that is broadcast scores every query with every group; target 0 is the candidate of the first query."""
    groups = torch.cat([candidate[:, None], negatives], dim=1).flatten(0, 1)
    return cross_entropy(logits(query, groups), torch.zeros(len(query), dtype=torch.int64))


def own_negatives_one_by_one(query: Tensor, candidate: Tensor, negatives: Tensor) -> Tensor:
    """The same loss query by query."""
    values = []
    for asking, own, hard in zip(query, candidate, negatives, strict=True):
        scores = logits(asking[None], torch.cat([own[None], hard]))
        values.append(cross_entropy(scores, torch.zeros(1, dtype=torch.int64)))
    return torch.stack(values).mean()


def resampled(query: Tensor, candidate: Tensor, negatives: Tensor | None, *, first: int) -> Tensor:
    """Cross-entropy over the batch and own columns: hard negatives, and as many again, drawn from some columns.

    Args:
        query: (N, D).
        candidate: (N, D).
        negatives: (N, K, D), or None: the batch alone.
        first: of the K columns that are drawn from, of positive and hard negatives: 0 begins with the positive.
    """
    scores, target = logits(query, candidate), torch.arange(len(query))
    if negatives is None:
        return cross_entropy(scores, target)
    columns = torch.cat([candidate[:, None], negatives], dim=1)
    number = negatives.shape[1]
    drawn = torch.randint(number, (len(query), number), generator=torch.Generator().manual_seed(0)) + first
    own = torch.cat([negatives, columns[target[:, None], drawn]], dim=1)
    hard = SCALE * (unit(query)[:, None] * unit(own)).sum(dim=-1)
    return cross_entropy(torch.cat([scores, hard], dim=1), target)


def resampled_with_positive(query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
    """The columns that are drawn from begin with the positive and end before the last hard negative."""
    return resampled(query, candidate, negatives, first=0)


def resampled_negatives(query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Hard negatives alone are drawn."""
    return resampled(query, candidate, negatives, first=1)


def counted_negatives(query: Tensor, candidate: Tensor, negatives: Tensor | None = None) -> Tensor:
    """The same with each hard negative once, and the logarithm of the number of its copies beside its logit."""
    scores, target = logits(query, candidate), torch.arange(len(query))
    if negatives is None:
        return cross_entropy(scores, target)
    number = negatives.shape[1]
    drawn = torch.randint(number, (len(query), number), generator=torch.Generator().manual_seed(0))
    copies = 1 + torch.nn.functional.one_hot(drawn, number).sum(dim=1)
    hard = SCALE * (unit(query)[:, None] * unit(negatives)).sum(dim=-1) + copies.to(scores).log()
    return cross_entropy(torch.cat([scores, hard], dim=1), target)
