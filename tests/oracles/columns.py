"""InfoNCE with columns: the denominators of GTE eq. 1, hardness, and the rules of filters, one candidate at a time."""

import math

from oracles._loops import logsumexp, rows

SOURCES = ("in-batch", "own hard", "others' hard", "query-query", "candidate-query", "candidate-candidate")


def mnrl(
    pairs, scale, directions, partition, hardness, hardness_on, filter_, filter_margin, percent, factor, frozen=None
):
    """Cross-entropy of each positive; a positive of source candidate-query is a term of the denominator."""
    losses = []
    still = [row for row, _, _ in rows(pairs if frozen is None else frozen)]
    for q, (row, positives, negatives) in enumerate(rows(pairs)):
        of = {j: SOURCES[0] if pairs.source is None else SOURCES[int(pairs.source[q, j])] for j in range(len(row))}
        own = [p for p in positives if of[p] != "candidate-query"]
        again = [p for p in positives if of[p] == "candidate-query"]
        judge = row if filter_ != "guide" else [float(s) for s in pairs.teacher[q]]
        logits = {p: scale * row[p] for p in positives}
        for n in negatives:
            best = max((judge[p] for p in positives), default=math.nan)
            bars = {"guide": best - filter_margin, "percent": percent * best}
            bars["relative_margin"] = best - (1 - percent) * abs(best)
            bar = bars.get(filter_, best + filter_margin)
            suspected = filter_ != "none" and judge[n] > bar
            if suspected and filter_ != "factor":
                continue
            logits[n] = (factor if suspected else 1) * scale * row[n]
            hard = of[n] == "own hard"
            if of[n] in SOURCES[:3] and hardness_on in {"all", "hard" if hard else "in-batch"}:
                logits[n] += hardness * still[q][n]
        parts = [(own, [j for j in logits if j not in own])]
        if partition == "per_direction" and pairs.source is not None:
            back = [j for j in logits if of[j] == "candidate-query"]
            parts = [(own, [j for j in logits if j not in own and j not in back])]
            parts += [(again, [j for j in back if j not in again])] if len(directions) > 1 else []
        total = 0.0
        for chosen, rest in parts:
            if rest:
                total += math.fsum(logsumexp([logits[p], *(logits[j] for j in rest)]) - logits[p] for p in chosen)
        losses.append(total / len(parts))
    return losses
