"""No computed number is further from the true one than its bound says, and no bound is much too wide.

The truth is rational: floats are whole numbers of 2^-1074, and so are their sums and products. Where an exponential or
a logarithm comes in, it is float64, which is nine digits finer than what is tested. Every test knows the largest part
of the bound that adversarial input reaches: above 1 the bound is wrong, and far below it the bound has become loose.
"""

import inspect
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos
from cocos import Embeddings, measures
from cocos.engine import bounds, devices
from rational import FINEST, WIDTHS, dot, norm, reached, root, rows, whole


def products(left, right):
    """The same float32 product summed in several orders."""
    terms = left * right
    yield terms.cumsum(dtype=np.float32)[-1]
    yield terms[::-1].cumsum(dtype=np.float32)[-1]
    yield terms.sum(dtype=np.float32)
    first, second = torch.from_numpy(left.copy()), torch.from_numpy(right.copy())
    yield (first[None] @ second[:, None]).item()
    lanes = np.zeros(16, dtype=np.float32)  # as a kernel does, with fused multiply-adds
    for k in range(0, len(left), 16):
        part = left[k : k + 16].astype(np.float64) * right[k : k + 16]
        lanes[: len(part)] = (lanes[: len(part)] + part).astype(np.float32)
    yield lanes.sum(dtype=np.float32)


@pytest.mark.parametrize(("width", "least"), list(zip(WIDTHS, (0.05, 0.05, 0.1, 0.1, 0.3, 0.6, 0.7), strict=True)))
def test_a_product_in_float32(width, least):
    most = 0.0
    for left, right in rows(width).values():
        bound = bounds.product(width, "float32", norm(left), norm(right))
        true = dot(left, right)
        most = max(most, *(float(abs(Fraction(float(found)) - true)) / bound for found in products(left, right)))
    reached(most, least)


@pytest.mark.parametrize("width", [each for each in WIDTHS if each >= 128])
def test_a_product_in_float32_whose_sum_is_made_in_pieces(width):
    most, step = 0.0, -(-width // -(-width // 64))
    for left, right in rows(width).values():
        bound = bounds.product(width, "float32", norm(left), norm(right), 64)
        assert bound < 0.7 * bounds.product(width, "float32", norm(left), norm(right))
        for some in zip(
            *(list(products(left[k : k + step], right[k : k + step])) for k in range(0, width, step)), strict=True
        ):
            found = np.array(some, dtype=np.float32).cumsum(dtype=np.float32)[-1]
            most = max(most, float(abs(Fraction(float(found)) - dot(left, right))) / bound)
    reached(most, 0.05)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_cosine_from_rows_scaled_by_a_float32_inverse(width):
    most = 0.0
    for left, right in rows(width).values():
        true = dot(left, right) / root(dot(left, left) * dot(right, right))
        scaled = [each * np.float32(1 / norm(each)) for each in (left, right)]
        found = max(float(abs(Fraction(float(each)) - true)) for each in products(*scaled))
        most = max(most, found / bounds.product(width, "float32"))
    reached(most, 0.4 if width > 128 else 0.0)


@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-30, 1e-22, 1e-19, 1e17])
def test_products_of_tiny_and_of_huge_rows(size):
    for width in (1, 16, 513):
        for pair in rows(width).values():
            scaled = (np.float32(size) * (each / np.float32(np.abs(each).max())) for each in pair)
            left, right = scaled
            bound, true = bounds.product(width, "float32", norm(left), norm(right)), dot(left, right)
            assert all(abs(Fraction(float(found)) - true) <= bound for found in products(left, right))


def distances(left, right, origin):
    """Squared distance as the engine forms it, one float32 product of two wider rows, and the norms."""
    first, second = left - origin, right - origin
    ends = [np.float32(norm(each) ** 2) for each in (first, second)]
    one = np.float32(1)
    wide = np.concatenate([2 * first, [-ends[0], -one]]), np.concatenate([second, [one, ends[1]]])
    return list(products(*(np.asarray(each, dtype=np.float32) for each in wide))), norm(first), norm(second)


@pytest.mark.parametrize("width", WIDTHS)
def test_squared_distances_and_their_roots(width):
    most, most_root = 0.0, 0.0
    for name, (left, right) in rows(width).items():
        near = left * np.float32(1 + 2.0**-12)
        for other in (right, near):
            origin = np.float32(0.5) * (left + other) if name == "plain" else np.zeros(width, dtype=np.float32)
            gaps = [a - b for a, b in zip(whole(left), whole(other), strict=True)]
            true = Fraction(sum(gap * gap for gap in gaps), 1 << 2 * FINEST)
            found, *norms = distances(left, other, origin)
            bound = bounds.squared_distance(width, "float32", *norms)
            most = max(most, *(float(abs(Fraction(float(each)) + true)) / bound for each in found))
            length = root(true)
            for each in found:
                computed = float(np.sqrt(np.float32(max(0.0, -each))))
                off = float(abs(Fraction(computed) - length))
                for score in (computed, -float(length)):
                    most_root = max(most_root, off / float(bounds.distance(bound, score, "float32")))
    reached(most, 0.005 if width < 128 else 0.1)
    assert most_root <= 1


def test_ends_are_rounded_outward():
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(4096, generator=generator, dtype=torch.float64)
    edges = torch.tensor(
        [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1e-46,
            -1e-46,
            1e-40,
            3.5e38,
            -3.5e38,
            1e300,
            -1e300,
            0.1,
            1 + 2.0**-52,
        ],
        dtype=torch.float64,
    )
    for values in (some, some * 1e-42, some.float().double(), edges):
        ends = bounds.outward(values, 1e-12)
        for value, below, above in zip(values.tolist(), *(end.double().tolist() for end in ends), strict=True):
            assert below == -math.inf or Fraction(below) <= Fraction(value) - Fraction(1e-12)
            assert above == math.inf or Fraction(above) >= Fraction(value) + Fraction(1e-12)
    low, high = bounds.outward(torch.tensor([math.inf, -math.inf], dtype=torch.float64), 1.0)
    assert (low[0] > 3e38) and (high[0] == math.inf) and (low[1] == -math.inf) and (high[1] < -3e38)


def test_kernel_exponential_is_within_bound():
    text = (Path(cocos.__file__).parent / "engine" / "kernel" / "tile.c").read_text()
    first, *terms = map(np.float32, re.findall(r"p = (?:p \* f \+ )?(\d\.\d+e[+-]\d+)f", text))
    exponent = np.linspace(-0.5, 0.5, 2**22 + 1, dtype=np.float32)
    for fused in (False, True):  # with and without fused multiply-adds
        power = np.full_like(exponent, first)
        for term in terms:
            power = (
                (power * exponent.astype(np.float64) + term).astype(np.float32) if fused else power * exponent + term
            )
        reached(float(np.abs(power / np.exp2(exponent.astype(np.float64)) - 1).max()) / bounds.EXP2, 0.4)


@pytest.mark.parametrize("temperature", [1.0, 0.05, 0.01])
def test_sigmoid_error_is_within_bound(temperature):
    score = torch.linspace(-1, 1, 2**16 + 1)
    nats, scale, largest = 1 / temperature, math.log2(math.e) / temperature, 0.0
    for bias in (0.3, 0.0, -10.0):
        power = (torch.nn.functional.logsigmoid(score * nats + bias) * math.log2(math.e)).exp2()
        true = torch.nn.functional.logsigmoid(score.double() * nats + bias)
        error = (power.double().log() - true)[true > -80].abs().max().item()
        largest = max(largest, error / bounds.sigmoid(scale + abs(bias) * math.log2(math.e)))
    reached(largest, 0.02)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_score_in_float64(width, unit):
    most = 0.0
    for left, right in rows(width).values():
        for dtype in (np.float32, np.float64):
            first, second = (each.astype(np.float64) for each in (left, right))
            if dtype == np.float64:
                first, second = first * (1 / 3), second * (1 / 7)
            true, sizes = dot(first, second), (norm(first), norm(second))
            found = [(first * second).cumsum()[-1], (first * second).sum(), first @ second]
            if unit:
                true /= root(dot(first, first) * dot(second, second))
                found = [each / sizes[0] / sizes[1] for each in found]
                sizes = (1.0, 1.0)
            bound = bounds.exact_dot(width) * sizes[0] * sizes[1]
            most = max(most, *(float(abs(Fraction(float(each)) - true)) / bound for each in found))
    reached(most, 0.05)
    assert bounds.exact_dot(width) <= (2 * width + 12) * 2.0**-53


@pytest.mark.parametrize("width", WIDTHS)
def test_a_distance_in_float64(width):
    most = 0.0
    for left, right in rows(width).values():
        for other in (right, left * np.float32(1 + 2.0**-12)):
            gaps = [a - b for a, b in zip(whole(left), whole(other), strict=True)]
            length = root(Fraction(sum(gap * gap for gap in gaps), 1 << 2 * FINEST))
            if length:
                found = math.sqrt(((left.astype(np.float64) - other) ** 2).cumsum()[-1])
                most = max(most, float(abs(Fraction(found) / length - 1)) / bounds.exact_distance(width))
    reached(most, 0.05 if width > 1 else 0.0)


def test_ties_are_no_finer_than_float64():
    for width in (2, 512, 2048, 4096, 100_000):
        assert bounds.ties(width, 1.0) >= 2 * bounds.exact_dot(width)
    assert bounds.ties(2048, 0.5) == 1e-12 and bounds.ties(512, 30.0) == 30e-12
    assert bounds.ties(4096, 1.0) > 1e-12


def test_bounds_are_infinite_where_nothing_is_known():
    assert bounds.gamma(2**24, 2.0**-24) == math.inf
    assert bounds.product(2**24, "float32") == math.inf
    assert bounds.total(2**24, 1) == math.inf


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_are_rounded_as_the_bounds_say(precision):
    """A process that trains with lower precision does not lower that of a pass; its own setting is kept."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        with devices.rounding():
            error = (left @ right - left.double() @ right.double()).abs().max()
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert error < 1e-3


@pytest.mark.parametrize("loss", ["ntxent", "circle"])
def test_counts_in_float32_do_not_depend_on_the_precision_of_the_process(loss):
    """A CPU with AMX multiplies float32 in bfloat16 where a process that trains says `medium`."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(300, 256, generator=generator)
    embeddings = Embeddings(query, query + 2 * torch.randn(300, 256, generator=generator))
    expected = measures.count(embeddings, loss, batch_size=300, dtype="float32")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = measures.count(embeddings, loss, batch_size=300, dtype="float32")
    finally:
        torch.set_float32_matmul_precision(before)
    assert expected.equals(found)


def test_the_page_names_every_bound():
    page = (Path(cocos.__file__).parent.parent / "docs" / "exactness.md").read_text()
    functions = {name for name, value in vars(bounds).items() if inspect.isfunction(value) and name[0] != "_"}
    assert functions - {"gamma"} <= set(re.findall(r"`(\w+)`", page))
