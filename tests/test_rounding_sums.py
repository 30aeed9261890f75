"""Exponentials, sums, limits, sigmoids and shares are no further from the truth than their bounds say."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos
from cocos.engine import bounds
from rational import reached


def polynomial():
    """The coefficients of the kernel's 2^f, highest power first."""
    text = (Path(cocos.__file__).parent / "engine" / "kernel" / "simd.h").read_text()
    (others,), (highest,) = re.findall(r"terms\[\] = \{(.*)\};", text), re.findall(r"vf p = all\((.*)f\);", text)
    found = [highest, *(each.strip(" f") for each in others.split(","))]
    assert len(found) == 6
    return np.array(found, dtype=np.float32)


@pytest.mark.parametrize("fused", [False, True])
def test_the_exponential_of_the_kernel(fused):
    place = np.linspace(-0.5, 0.5, 2**22 + 1, dtype=np.float32)
    found, *others = polynomial()
    found = np.full_like(place, found)
    for each in others:
        found = (found * place.astype(np.float64) + each).astype(np.float32) if fused else found * place + each
    true = np.exp2(place.astype(np.float64))
    reached(float(np.abs(found / true - 1).max()) / bounds.EXP2, 0.4)


def test_the_exponential_and_the_logarithm_of_torch():
    exponent = torch.linspace(-125, 127, 2**22)
    off = (exponent.exp2().double() / exponent.double().exp2() - 1).abs().max().item()
    reached(off / bounds.EXP2, 0.2)
    number = torch.cat([exponent.exp2(), torch.linspace(0.5, 2, 2**20)])
    true = number.double().log2()
    off = ((number.log2().double() - true).abs() / true.abs().clamp(min=2.0**-126)).max().item()
    reached(off / bounds.LOG2, 0.2)


@pytest.mark.parametrize("scale", [each * (1 + 0.98 * 2.0**-24) for each in (0.5, 32.0, 64.0, 2048.0)])
@pytest.mark.parametrize("reference", [False, True])
def test_an_exponential_of_a_scaled_score(scale, reference):
    score = torch.rand(2**18, generator=torch.Generator().manual_seed(5)) * 2 - 1
    true = score.double() * scale
    own = true.ceil() if reference else torch.zeros_like(true)
    if not reference and scale > 126:
        return
    exponent = score * torch.tensor(scale, dtype=torch.float32) - own.float()
    off = (exponent.exp2().double().log() - (true - own) * math.log(2)).abs().max().item()
    span = 1.0 if reference else scale
    reached(off / bounds.exponential(scale, span), 0.1 if scale < 1 else 0.25)
    assert bounds.exponential(scale, span) <= bounds.exponential(scale)


@pytest.mark.parametrize("number", [1, 64, 2048])
def test_a_sum_of_positive_numbers(number):
    terms = np.concatenate([[1.0], np.full(number - 1, 2.0**-24)]).astype(np.float32)
    generator = np.random.default_rng(number)
    many = np.exp(3 * generator.standard_normal((256, number))).astype(np.float32)
    most = 0.0
    for each in (terms, *many[:16]):
        found = math.log(float(each.cumsum(dtype=np.float32)[-1])) - math.log(math.fsum(each.tolist()))
        most = max(most, abs(found) / bounds.total(number, 1))
    reached(most, 0.9 if number > 1 else 0.0)
    long = many.cumsum(axis=1, dtype=np.float32)[:, -1].astype(np.float64).cumsum()[-1]
    assert abs(math.log(long) - math.log(math.fsum(many.ravel().tolist()))) <= bounds.total(number, 256)


@pytest.mark.parametrize("temperature", [0.5, 0.05, 0.02])
def test_a_sum_of_exponentials_of_scores(temperature):
    generator = torch.Generator().manual_seed(1)
    most = 0.0
    for width in (8, 128, 512):
        query, candidate = (torch.randn(n, width, generator=generator) for n in (64, 256))
        candidate[:64] = query + 1e-3 * candidate[:64]
        query, candidate = (torch.nn.functional.normalize(each.double()) for each in (query, candidate))
        true = (query @ candidate.T / temperature).logsumexp(dim=1)
        score, scale = query.float() @ candidate.float().T, math.log2(math.e) / temperature
        parts = (score * torch.tensor(scale, dtype=torch.float32)).exp2().reshape(64, 4, 64).cumsum(dim=2)[..., -1]
        off = (parts.double().sum(dim=1).log() - true).abs().max().item()
        bound = bounds.log_sum(bounds.product(width, "float32"), 1 / temperature, scale, 64, 4)
        most = max(most, off / bound)
    reached(most, 0.002)


def test_pairs_that_take_no_part_hardly_add_to_a_sum():
    for number in (1, 8192, 2**20):
        for least in (-90.0, -30.0, 0.0):
            assert Fraction(number, 2**126) / Fraction(2.0**least) <= Fraction(bounds.clamped(number, least))
    assert bounds.clamped(8192, -90.0) < 2e-7


def test_a_limit_drops_no_negative_that_counts():
    """The scores that are just enough for eps, found by bisection in float64, are above every limit of partial sums."""
    generator = torch.Generator().manual_seed(2)
    width, eps = 64, 0.01
    for temperature in (0.5, 0.05, 0.02):
        nats, scale = 1 / temperature, math.log2(math.e) / temperature
        score = (torch.rand(256, 512, generator=generator, dtype=torch.float64) * 2 - 1).sort(dim=1).values
        bound = bounds.product(width, "float32")
        rounded = (score + (2 * torch.rand(score.shape, generator=generator, dtype=torch.float64) - 1) * bound).float()
        whole_sum = (score * nats).logsumexp(dim=1)
        mass = (rounded * torch.tensor(scale, dtype=torch.float32)).exp2()
        error = bounds.log_sum(bound, nats, scale, 64, 8)
        least = (whole_sum + math.log(eps)) / nats  # scores above it count
        found = (mass.reshape(256, 8, 64).cumsum(dim=2)[..., -1].double().cumsum(dim=1)).float()
        limit = (found.log2() + torch.tensor(math.log2(eps), dtype=torch.float32)) / torch.tensor(scale).float()
        limit = limit - torch.tensor(bounds.room(bound, nats, error, scale + 16)).float()
        assert (limit.double() <= (least - bound)[:, None]).all()
        assert (limit[:, -1].double() >= least - 40 * bound - 0.01 * temperature).all()


@pytest.mark.parametrize("temperature", [1.0, 0.05, 0.01])
def test_shares_that_float64_cannot_tell_apart(temperature):
    generator = torch.Generator().manual_seed(3)
    query, candidate = (torch.randn(n, 64, generator=generator, dtype=torch.float64) for n in (4, 300))
    nats, most = 1 / temperature, 0.0
    for each in query:
        found = (candidate @ each / candidate.norm(dim=1) / each.norm() * nats).softmax(dim=0)
        fine = candidate.numpy().astype(np.longdouble), each.numpy().astype(np.longdouble)
        score = (fine[0] @ fine[1]) / np.sqrt((fine[0] ** 2).sum(axis=1) * (fine[1] ** 2).sum()) / temperature
        mass = np.exp(score - score.max())
        off = np.abs(found.numpy() / (mass / mass.sum()) - 1).max()
        most = max(most, float(off) / bounds.equal(bounds.exact_dot(64), nats, 300))
    assert most <= 1
    assert bounds.equal(bounds.exact_dot(64), nats, 300) < 2e-11


@pytest.mark.parametrize("temperature", [1.0, 0.05, 0.01])
def test_sigmoid_error_is_within_bound(temperature):
    score = torch.linspace(-1, 1, 2**16 + 1, dtype=torch.float64)
    nats, scale, largest = 1 / temperature, math.log2(math.e) / temperature, 0.0
    for level in (0.3, 0.99999, -0.7123):
        z = ((score.float() - torch.tensor(level).float()) * torch.tensor(scale).float()).clamp(-126, 126)
        true = (score - level) * nats
        inside = true.abs() < 86
        error = (1 / (1 + (-z).exp2())).double().log() - torch.nn.functional.logsigmoid(true)
        largest = max(largest, error[inside].abs().max().item() / bounds.sigmoid(2.0**-24, nats, 2 * scale))
    reached(largest, 0.02)


def test_the_logarithm_of_limits_is_hardly_ever_too_large():
    """The kernel's log2 of sums, about which `room` knows."""
    text = (Path(cocos.__file__).parent / "engine" / "kernel" / "logsumexp.c").read_text()
    found = re.search(r"f \* \(([-\d.]+) \+ f \* \(([-\d.]+) \+ f \* \(([-\d.]+) \+ f \* ([-\d.]+)\)\)\)", text)
    first, second, third, fourth = map(float, found.groups())
    f = np.linspace(0, 1, 2**20)
    off = f * (first + f * (second + f * (third + f * fourth))) - np.log2(1 + f)
    assert -3e-4 < off.min() and off.max() < bounds.LOG2
    assert bounds.room(0.0, 1.0, 0.0, 1.0) > 2 * off.max() * math.log(2)


def test_the_place_in_a_histogram():
    score = torch.linspace(-1, 1, 2**18 + 1)
    most = 0.0
    for start, high, bins in ((-1.0, 1.0, 4096), (-0.3, 0.9, 1000), (-1.1, 1.7, 77)):
        low = torch.tensor(start)
        width = (high - low.double()) / bins
        found = (score - low) * (1 / width).float()
        off = (found.double() - (score.double() - low.double()) / width)[(score >= low) & (score < high)].abs().max()
        most = max(most, off.item() / bounds.bin_place(bins))
    reached(most, 0.3)
