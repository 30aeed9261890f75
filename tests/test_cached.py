"""Gradient caching: the gradient of the whole batch, with the activations of one chunk at a time."""

import pytest
import torch
from torch import nn

import cocos
from cocos.base.errors import InputError

ROWS, WIDTH = 10, 6


def tower(seed, *more):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *more, nn.Linear(16, WIDTH)).double()


def inputs(number, seed):
    return torch.randn(number, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradients(*modules):
    return [parameter.grad.clone() for module in modules for parameter in module.parameters()]


@pytest.mark.parametrize("chunk", [1, 3, 10, 100])
@pytest.mark.parametrize("name", ["ntxent", "triplet", "ce_softmax"])
def test_the_gradient_is_that_of_the_whole_batch(name, chunk):
    query, candidate, hard = inputs(ROWS, 0), inputs(ROWS, 1), inputs(2 * ROWS, 2)
    plain = tower(0), tower(1)
    loss = cocos.losses.load(name)
    asking, asked = plain[0](query), torch.cat([plain[1](candidate), plain[1](hard)])
    scores = cocos.scores.METRICS[loss.metric](asking, asked)
    value = loss(scores, torch.eye(ROWS, 3 * ROWS, dtype=torch.bool)).mean()
    value.backward()
    cut = tower(0), tower(1)
    found = cocos.losses.cached(loss, chunk)((cut[0], query), (cut[1], candidate), (cut[1], hard))
    found.backward()
    torch.testing.assert_close(found, value, rtol=1e-12, atol=0)
    for ours, theirs in zip(gradients(*cut), gradients(*plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_each_chunk_is_encoded_twice_and_no_other_rows_at_once():
    seen, own = [], tower(0)

    def encoder(rows):
        seen.append(len(rows))
        return own(rows)

    value = cocos.losses.cached("ntxent", 4)((encoder, inputs(ROWS, 0)), (encoder, inputs(ROWS, 1)))
    assert seen == [4, 4, 2, 4, 4, 2]
    value.backward()
    assert sorted(seen[6:]) == [2, 2, 4, 4, 4, 4]


def test_dropout_draws_the_same_when_a_chunk_is_encoded_again():
    own, query, candidate = tower(0, nn.Dropout(0.5)), inputs(ROWS, 0), inputs(ROWS, 1)
    loss = cocos.losses.load("ntxent")
    torch.manual_seed(5)
    asking, asked = (torch.cat([own(part) for part in side.split(4)]) for side in (query, candidate))
    loss(cocos.scores.cosine(asking, asked), torch.eye(ROWS, dtype=torch.bool)).mean().backward()
    plain = gradients(own)
    own.zero_grad()
    torch.manual_seed(5)
    cocos.losses.cached(loss, 4)((own, query), (own, candidate)).backward()
    for ours, theirs in zip(gradients(own), plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_inputs_may_be_tokens_and_lists():
    own = nn.EmbeddingBag(50, WIDTH)
    tokens = {"ids": torch.randint(50, (ROWS, 7), generator=torch.Generator().manual_seed(0)), "mode": "text"}
    words = [str(k) for k in range(ROWS)]
    encode = lambda batch: own(batch["ids"])  # noqa: E731
    spell = lambda batch: own(torch.tensor([[int(word)] for word in batch]))  # noqa: E731
    cocos.losses.cached("ntxent", 3)((encode, tokens), (spell, words)).backward()
    assert own.weight.grad.abs().sum() > 0


def test_a_function_of_embeddings_is_a_loss():
    def softest(query, candidate):
        return -(query * candidate).sum(dim=1)

    value = cocos.losses.cached(softest, 2)((lambda x: x, torch.eye(3)), (lambda x: x, torch.eye(3)))
    assert value == -1


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True, "8"])
def test_a_chunk_must_be_a_whole_number(chunk):
    with pytest.raises(InputError, match="chunk: .*, expected a whole number of at least 1"):
        cocos.losses.cached("ntxent", chunk)


def test_numbers_of_rows_must_fit():
    loss, own = cocos.losses.cached("ntxent", 4), tower(0)
    with pytest.raises(InputError, match="10 queries and 9 candidates, not as many"):
        loss((own, inputs(10, 0)), (own, inputs(9, 0)))
    with pytest.raises(InputError, match="15 hard negatives for 10 queries, expected K for each"):
        loss((own, inputs(10, 0)), (own, inputs(10, 1)), (own, inputs(15, 0)))
    with pytest.raises(InputError, match="no inputs to encode"):
        loss((own, []), (own, inputs(10, 1)))
    with pytest.raises(InputError, match="it takes no hard negatives"):
        cocos.losses.cached(lambda query, candidate: query.sum(), 2)(
            (own, inputs(2, 0)), (own, inputs(2, 1)), (own, inputs(2, 2))
        )
