"""MaxSim: scores of token vectors, and the tokens of a document that its weight reaches."""

import math

import pytest
import torch

from cocos import InputError, Pairs, losses
from cocos.counting import maxsim

QUERIES, DOCUMENTS, ASKED, ASKS, WIDTH = 4, 6, 5, 3, 8


def tokens(seed=0, dtype=torch.float64):
    """Raw tokens of both sides, and masks in which the first tokens are there, another number of them in each row."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(QUERIES, ASKS, WIDTH, generator=generator, dtype=dtype)
    candidate = 3 * torch.randn(DOCUMENTS, ASKED, WIDTH, generator=generator, dtype=dtype)
    query_mask = torch.arange(ASKS) < 1 + torch.arange(QUERIES)[:, None] % ASKS
    return query, candidate, query_mask, torch.arange(ASKED) < 1 + torch.arange(DOCUMENTS)[:, None] % ASKED


def slow(query, candidate, query_mask, candidate_mask):
    """Score and chosen places, one token after the other."""
    scores, chosen = [], []
    for q, there in zip(query.tolist(), query_mask.tolist(), strict=True):
        scores.append([])
        chosen.append([])
        for c, here in zip(candidate.tolist(), candidate_mask.tolist(), strict=True):
            total, places = 0.0, []
            for x in (x for x, some in zip(q, there, strict=True) if some):
                cosines = [
                    math.fsum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))
                    for y, some in zip(c, here, strict=True)
                    if some
                ]
                places.append(cosines.index(max(cosines)))
                total += max(cosines)
            scores[-1].append(total)
            chosen[-1].append(places + [-1] * (len(q) - len(places)))
    return torch.tensor(scores, dtype=torch.float64), torch.tensor(chosen)


@pytest.mark.parametrize("block", [1, 50, 2**24])
def test_scores_and_chosen_tokens_are_those_of_a_loop(monkeypatch, block):
    monkeypatch.setattr(maxsim, "MAX_SIMILARITIES", block)
    found, (scores, chosen) = maxsim.score(*tokens()), slow(*tokens())
    torch.testing.assert_close(found.scores, scores, rtol=1e-12, atol=1e-12)
    assert torch.equal(found.chosen, chosen)
    distinct = [[len(set(places) - {-1}) for places in row] for row in chosen.tolist()]
    assert maxsim.carriers(found).tolist() == distinct


@pytest.mark.parametrize("name", ["ntxent", "triplet", "siglip"])
def test_weights_reach_the_tokens_as_in_autograd(name):
    """Through the normalisation, the largest similarity and the sum, to the raw tokens of both sides."""
    query, candidate, *masks = tokens(1)
    leaves = query.requires_grad_(), candidate.requires_grad_()
    loss, positive = losses.load(name), torch.eye(QUERIES, DOCUMENTS, dtype=torch.bool)
    trained = maxsim.score(*leaves, *masks)
    expected = torch.autograd.grad(loss(Pairs(trained.scores, positive)).sum(), leaves)
    found = maxsim.score(*(each.detach() for each in leaves), *masks)
    weights = loss.weight(Pairs(found.scores, positive))
    for ours, theirs, mask in zip(maxsim.gradients(found, weights), expected, masks, strict=True):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
        assert (ours[~mask] == 0).all()


def test_a_document_hands_its_weight_to_the_tokens_that_were_chosen():
    query, candidate, *masks = tokens(2)
    found = maxsim.score(query[:1], candidate, masks[0][:1], masks[1])
    gradient = maxsim.gradients(found, torch.ones(1, DOCUMENTS, dtype=torch.float64))[1]
    assert (gradient != 0).any(dim=2).sum(dim=1).tolist() == maxsim.carriers(found)[0].tolist()


def test_tokens_of_contributing_negatives_are_counted():
    """Of documents with 3 tokens each, the positive is chosen twice and the near negative once; the far one is idle."""
    east, north, up = torch.eye(3, dtype=torch.float64)
    query = torch.stack([east, north])[None]
    candidate = torch.stack([torch.stack(rows) for rows in ([east, north, up], [east, up, up], [-east, -north, -up])])
    found = maxsim.score(query, candidate)
    assert found.scores.tolist() == [[2.0, 1.0, 0.0]]
    told = maxsim.statistics(found, losses.load("ntxent", {"temperature": 0.25}), torch.tensor([[True, False, False]]))
    assert told["contributing"].tolist() == [1]  # e^-4 of the positive's, and e^-8
    assert told["positive_tokens"].tolist() == [2] and told["positive_tokens_part"].tolist() == pytest.approx([2 / 3])
    assert told["negative_tokens"].tolist() == [1] and told["negative_tokens_part"].tolist() == pytest.approx([1 / 3])
    none = maxsim.statistics(found, losses.load("triplet"), torch.tensor([[True, False, False]]))
    assert none["contributing"].tolist() == [0] and none["negative_tokens"].isnan().all()


def test_the_first_of_equal_tokens_is_chosen_and_half_precision_runs():
    same = torch.ones(2, 3, 4, dtype=torch.bfloat16)
    found = maxsim.score(same, same)
    assert found.scores.dtype == torch.bfloat16 and (found.chosen == 0).all()
    assert maxsim.carriers(found).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"query": torch.ones(2, 3)}, "query: torch.float32 of shape (2, 3), expected floating point (rows, tokens"),
        ({"candidate": torch.ones(2, 3, 4, dtype=torch.int64)}, "candidate: torch.int64 of shape (2, 3, 4), expected"),
        ({"candidate": torch.ones(2, 3, 5)}, "query tokens have 4 dimensions and candidate tokens 5"),
        ({"query": torch.zeros(2, 3, 4)}, "query: a zero vector, whose cosine is not defined, in rows 0, 1"),
        ({"candidate": torch.full((1, 3, 4), math.nan)}, "candidate: NaN or infinity in row 0"),
        ({"query_mask": torch.ones(2, 2, dtype=torch.bool)}, "query_mask: torch.bool of shape (2, 2), expected bool"),
        ({"candidate_mask": torch.ones(2, 3)}, "candidate_mask: torch.float32 of shape (2, 3), expected bool of shape"),
        ({"candidate_mask": torch.zeros(2, 3, dtype=torch.bool)}, "candidate: no token in rows 0, 1"),
    ],
)
def test_bad_tokens_get_one_sentence(change, sentence):
    with pytest.raises(InputError) as error:
        maxsim.score(**{"query": torch.ones(2, 3, 4), "candidate": torch.ones(2, 3, 4)} | change)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_what_is_padded_may_be_anything():
    query, candidate, *masks = tokens(3)
    filled = torch.where(masks[1][..., None], candidate, torch.nan)
    assert torch.equal(maxsim.score(query, filled, *masks).scores, maxsim.score(query, candidate, *masks).scores)
