"""The pass inside the kernel against the pass in tiles and dense float64: what is packed, and what is seen of it."""

import ctypes
import functools
import math
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from cocos import losses, readers, sweep, tiles
from cocos.embeddings import Embeddings
from cocos.readers import _exponentials, _shares
from cocos.readers._exponentials import Survivors
from cocos.readers._levels import MOST, Levels
from cocos.tiles import _build, _compiled, fused
from test_sweep import (
    DISTANCES,
    FAMILY,
    LENGTHS,
    SUMS,
    TILE,
    Input,
    Of,
    assert_same,
    by_hand,
    check,
    check_counts,
    drawn,
    inputs,
    nearly_equal,
    pairs_of,
    weighed,
)
from test_sweep import visited as seen_with

visited = functools.partial(seen_with, relative=False)  # which may take one more pass

pytestmark = pytest.mark.skipif(_build.loaded() is None, reason="there is no C compiler")
PAYS = sweep._pays
SOFT = (FAMILY[0], *FAMILY[2:4])  # FAMILY[1] has wide exponents
HINGE = tuple((loss, eps) for loss, eps in FAMILY if hasattr(loss, "hinge"))
REST = tuple(each for each in FAMILY if each not in SOFT + HINGE)
DOT = tuple((Of(losses.load(name), "dot"), 0.01) for name in ("ntxent", "triplet"))
SQUARED = tuple((Of(losses.load(name), "squared_euclidean"), 0.01) for name in ("ntxent", "triplet"))
HARDEST = ("random", "clustered", "exact duplicates", "ascending both ways", "raw", "captions", "labelled", "paired")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Whether the kernel is taken is not a matter of the clock."""
    monkeypatch.setattr(sweep, "_pays", lambda view: True)
    monkeypatch.setattr(sweep, "_product", lambda *_: ("torch.mm", sweep._mm))


@pytest.fixture(scope="module", autouse=True)
def compiling(tmp_path_factory):
    """A compiler at work meanwhile, where there is something to be built for `narrow`, and what it makes."""
    about, compiler, process = Path("/proc/cpuinfo"), shutil.which("gcc"), None
    made = tmp_path_factory.mktemp("kernel") / "kernel.so"
    if compiler and about.exists() and {"avx512f", "avx2"} <= set(about.read_text("utf-8").split()):
        flags = [flag.replace("native", "haswell") for flag in _build.FLAGS]
        process = subprocess.Popen([compiler, *flags, "-o", str(made), str(_build.SOURCE), "-lm"])
    yield process, made
    if process:
        process.wait()


@pytest.fixture
def taken(monkeypatch):
    """Rows and columns that the kernel has visited for readers."""
    calls, visit = [], fused.Strip.visit

    def noted(strip, right, rows, columns, own, *, root):
        if strip.watches:
            calls.append((rows, columns))
        visit(strip, right, rows, columns, own, root=root)

    monkeypatch.setattr(fused.Strip, "visit", noted)
    return calls


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def workers(monkeypatch):
    """As many threads visit strips, and torch itself has one, so that small tensors do not make it wait."""
    return lambda number: monkeypatch.setattr(torch, "get_num_threads", lambda: number)


def times(taken, view):
    """How often the kernel has visited the whole matrix since the last call."""
    area = sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in taken)
    whole, rest = divmod(area, math.prod(len(side) for side in view.sides))
    assert rest == 0 and all(rows.stop - rows.start <= fused.strip() for rows, _ in taken)
    taken.clear()
    return whole


def unfused(given, asked, tile=TILE):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "FUSED", False)
        return visited(given, asked, tile=tile)


def unpacked(packed, *, left):
    """The rows of panels, (N, d)."""
    side = fused._tall() if left else fused.panel()
    return packed.view(-1, packed.shape[1], side).transpose(1, 2).reshape(packed.shape)


def room_for(number, width, *, left):
    side = fused._wide() if left else fused.panel()
    return torch.full((-(-number // side) * side, width), torch.nan)


def assert_bits(first, second, what, room=0.0):
    """Whole numbers are equal, and so are sums, but for as much of each as there is room for."""
    for (loss, _, found), (_, _, other) in zip(first, second, strict=True):
        for mine, theirs in zip(found, other, strict=True):
            for name, values in mine.items():
                off = (values - theirs[name]).abs()
                more = room * values.abs().max() if values.is_floating_point() else 0
                assert (off <= more).all(), f"{what}, {loss}: {name}"


@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 33, 511, 512, 513, 1030])
def test_the_product_is_as_exact_as_stated(width):
    """Any order of d sums of rounded products: (d + 8) units of 2^-24, as `View.rounding` says."""
    for m, n in ((1, 1), (2, 300), (7, 15), (8, 16), (9, 17), (15, 47), (17, 48), (33, 49), (256, 96), (300, 97)):
        sides, packed = (drawn(m, width), drawn(n, width, 1)), []
        for rows, left in zip(sides, (True, False), strict=True):
            packed.append(room_for(len(rows), width, left=left))
            fused.pack(rows, packed[-1], left=left)
            there = unpacked(packed[-1], left=left)
            assert torch.equal(there[: len(rows)], rows) and (there[len(rows) :] == 0).all()
        tile = torch.full((len(packed[0]) + 1, len(packed[1]) + 16), torch.nan)
        at = [each.data_ptr() for each in packed]
        _build.loaded().cocos_product(*at, m, n, width, tile.data_ptr(), tile.stride(0))
        right = sides[0].double() @ sides[1].double().T
        room = (width + 8) * 2**-24 * sides[0].double().norm(dim=1)[:, None] * sides[1].double().norm(dim=1)
        assert ((tile[:m, :n] - right).abs() <= room).all(), (m, n)
        assert tile[-1].isnan().all() and tile[:, len(packed[1]) :].isnan().all(), "written beyond the panels"


@pytest.mark.parametrize("left", [True, False], ids=["rows", "columns"])
def test_rows_are_taken_in_any_order_moved_and_scaled(left):
    for number, width in ((1, 1), (16, 16), (17, 33), (95, 15), (150, 40), (300, 513)):
        rows, origin = drawn(70, width), drawn(1, width, 1)[0]
        order = torch.randint(70, (number,), generator=torch.Generator().manual_seed(2))
        scale, more = drawn(number, 1, 3)[:, 0], drawn(number, 2, 4)
        for moved, scaled, factor, longer in ((1, 1, 2.0, 1), (1, 0, 1.0, 0), (0, 1, -0.3, 0), (0, 0, 1.0, 1)):
            how = {"origin": origin if moved else None, "scale": scale if scaled else None, "factor": factor}
            how["more"] = more if longer else None
            right = (rows[order] - origin if moved else rows[order]) * (scale[:, None] * factor if scaled else factor)
            right = torch.cat([right, more], dim=1) if longer else right
            start = 2 * fused.panel()
            packed = room_for(start + number, right.shape[1], left=left)
            fused.pack(rows, packed, start, left=left, order=order, **how)
            there = unpacked(packed, left=left)
            assert there[:start].isnan().all(), "written before the start"
            assert torch.equal(there[start : start + number], right) and (there[start + number :] == 0).all()


@pytest.mark.parametrize("metric", sweep.METRICS)
def test_what_is_packed_is_what_is_multiplied(metric, monkeypatch):
    """Also where it must be prepared; rows whose norms are as good as 1 may be left as they are by one of both ways."""
    monkeypatch.setattr(sweep, "PREPARED", 2 * fused.panel())
    for kind in ("raw", "captions", "labelled", "float16", "bfloat16", "float64", "strided", "beyond float32"):
        if kind in LENGTHS and metric != "cosine":
            continue
        view = inputs()[kind].view(metric)
        for direction, side in enumerate(view.sides):
            for start, stop in ((0, len(side)), (len(side) // 3, len(side)), (1, 2)):
                right, left = view.operand(direction, start, stop), direction == 0
                place = 0 if left else fused.panel()
                packed = room_for(place + stop - start, right.shape[1], left=left)
                view.pack(direction, start, stop, packed, place)
                found = unpacked(packed, left=left)[place:]
                room = sweep.NEAR * (1 + right.abs()) if view.ready(direction) else 0
                assert ((found[: stop - start] - right).abs() <= room).all(), (kind, direction)
                assert (found[stop - start :] == 0).all() and unpacked(packed, left=left)[:place].isnan().all()


WAYS = (((37, 16), 0, 2), ((256, 384), 2**24, 1), ((100, 60), 0, 1), (None, 2**24, 2))  # tile, PACKED, threads


@pytest.mark.parametrize("kind", sorted(inputs()))
def test_a_pass_in_the_kernel_finds_the_same(kind, taken, workers, monkeypatch):
    given = inputs()[kind]
    soft, hinge, far = SOFT, HINGE, (DISTANCES, SQUARED, DOT)
    if max(int(given.view().counted(k).max()) for k in given.view().directions) > MOST:  # no hinge sees these
        soft, hinge, far = SOFT, (), (DISTANCES[:1], SQUARED[:1], DOT[:1])
    far = () if kind in LENGTHS else far if kind in HARDEST else far[:1]
    for asked in (soft + hinge, *far):
        view = given.view(asked[0][0].metric)
        if asked[0][0].metric in {"dot", "squared_euclidean"} and view.most > 4:  # exponents are wide
            continue
        first = unfused(given, asked)
        assert not taken
        ways = WAYS if kind in HARDEST else WAYS[:1] + WAYS[3:]
        for tile, packed, number in ways if asked == soft + hinge else WAYS[2:3]:
            if tile is None and len(view.sides[0]) <= fused.strip():  # it would be the same as before
                continue
            workers(number)
            monkeypatch.setattr(sweep, "PACKED", packed)
            second = visited(given, asked, tile=tile)
            blocks = len({columns.start for _, columns in taken})
            assert blocks == (1 if packed else -(-len(view.sides[1]) // fused.width(tile)))
            assert times(taken, view) == 1
            for (loss, eps, found), (_, _, other) in zip(second, first, strict=True):
                assert_same(loss, found, other, f"{kind}, {tile}")
                for direction, pairs in zip(found, given.pairs(loss.metric), strict=True) if packed == 0 else ():
                    check(direction, loss, eps, pairs, f"{kind}, {tile}, {loss}")


@pytest.mark.parametrize("kind", HARDEST)
def test_the_rest_of_the_family_is_the_same_alone(kind):
    """Whichever of them the kernel shows its scores to."""
    for asked in REST:
        for (loss, _, found), (_, _, other) in zip(
            visited(inputs()[kind], [asked]), unfused(inputs()[kind], [asked]), strict=True
        ):
            assert_same(loss, found, other, kind)


def test_the_kernel_is_left_alone_where_it_cannot_see_all(taken, monkeypatch):
    given, many = inputs()["random"], inputs()["many positives"]
    (ntxent, triplet), sharp = (losses.load(name) for name in ("ntxent", "triplet")), {"temperature": 0.005}
    view = given.view()

    def seen(*asked, given=given, product="float32"):
        sweep.run(given.view(product=product), list(asked), tile=TILE)
        return times(taken, given.view())

    assert seen(readers.of(ntxent), readers.of(triplet)) == 1
    assert seen(readers.of(ntxent), product="float64") == seen(readers.of(ntxent), product="bfloat16") == 0
    assert seen(readers.of(ntxent), readers.Histogram(24)) == seen(readers.Histogram(24)) == seen() == 0
    assert seen(readers.of(losses.load("ntxent", sharp))) == 0, "|z| is above 90"
    assert seen(readers.of(ntxent), readers.of(losses.load("ntxent", sharp))) == 0
    assert seen(readers.of(ntxent), given=many) == 1 and seen(readers.of(ntxent), readers.of(triplet), given=many) == 0
    for of, name, value in ((sweep, "FUSED", False), (sweep, "_pays", lambda view: False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(of, name, value)
            assert seen(readers.of(ntxent)) == 0
    monkeypatch.setattr(_build, "loaded", lambda: None)
    assert not tiles.fuses(view.device) and seen(readers.of(ntxent)) == 0


def test_whether_it_pays_is_measured_once_for_large_views(monkeypatch):
    monkeypatch.setattr(sweep, "_paying", {})
    monkeypatch.setattr(sweep, "DEARER", 0.0)
    small, large = (Input(Embeddings(*pairs_of(number, 24))).view() for number in (511, 513))
    assert PAYS(small) and not sweep._paying, "tiles of less than 2^18 scores are not measured"
    assert not PAYS(large) and len(sweep._paying) == 1
    monkeypatch.setattr(sweep, "DEARER", math.inf)
    assert not PAYS(large), "measured twice"
    sweep._paying.clear()
    assert PAYS(large)


@pytest.fixture(scope="module")
def many():
    """More rows than two strips have."""
    return Input(Embeddings(*pairs_of(700, 24)))


def test_no_bit_depends_on_blocks_or_chance(many, taken, workers, monkeypatch):
    """Nor any count on threads; masses of survivors are float64 sums in the order in which each thread found them.

    Of 700 rows there are two parts: strips of 256, 256 and 88 rows, which threads share, and one of 100.
    """
    deep = Input(Embeddings(*pairs_of(300, 530)))  # more factors than are summed at once
    for given, asked in ((many, SOFT + HINGE), (many, DISTANCES), (deep, SOFT + HINGE), (deep, DISTANCES)):
        first, whole = visited(given, asked, tile=(600, 96)), unfused(given, asked)
        for (loss, _, found), (_, _, other) in zip(first, whole, strict=True):
            assert_same(loss, found, other, "in tiles")
        for packed, number in ((2**24, 1), (0, 1), (0, 2), (2**24, 2), (2**24, 3)):
            workers(number)
            monkeypatch.setattr(sweep, "PACKED", packed)
            second, room = visited(given, asked, tile=(600, 96)), 0.0 if number == 1 else 1e-13
            assert_bits(first, second, f"{packed}, {number} threads", room)
        workers(1)
    assert taken


def test_where_processes_would_exchange_parts_the_order_is_another_and_the_bits_are_not(many, taken, monkeypatch):
    view = sweep.view(many.embeddings, together=True)
    first = visited(many, SOFT + HINGE, tile=(50, 96))
    taken.clear()
    monkeypatch.setattr(sweep, "PACKED", 0)
    found = sweep.run(view, [readers.of(*each) for each in SOFT + HINGE], tile=(50, 96))
    assert [columns.start for _, columns in taken[:4]] == [0, 0, 96, 96], "two strips of the first part, block by block"
    second = [(*each, result) for each, result in zip(SOFT + HINGE, found, strict=True)]
    assert_bits(first, second, "together")


@pytest.mark.parametrize("kind", ["random", "exact duplicates", "collapsed", "ascending both ways", "captions", "many"])
def test_nothing_is_lost_where_room_is_short(kind, many, monkeypatch):
    """Of 2 · 64 · 48 places a tile of 64 rows may need all, so that any that is found is taken out at once."""
    given, drains, drain = many if kind == "many" else inputs()[kind], [], fused._Found.drain
    asked = (*SOFT[1:], *HINGE[:2], (losses.load("ntxent", {"temperature": 1.0}), 1e-3))
    monkeypatch.setattr(_exponentials, "SPARE", 2**20)  # a second pass has tiles of its own, which need more room
    first = visited(given, asked, tile=(64, 48))
    taken = fused.Exponentials.taken
    monkeypatch.setattr(fused._Found, "drain", lambda held, state: drains.append(state.found) or drain(held, state))
    monkeypatch.setattr(fused.Exponentials, "taken", lambda of: drains.append(of._state.found) or taken(of))
    counts = []
    for room, many_ in ((2**18, 2**15), (2 * 64 * 48, 2**15), (2 * 64 * 48, 0), (2**18, 0)):
        monkeypatch.setattr(fused, "ROOM", room)
        monkeypatch.setattr(fused, "MANY", many_)
        assert_bits(first, visited(given, asked, tile=(64, 48)), f"room for {room}")
        counts.append(sum(number > 0 for number in drains))
        drains.clear()
    assert counts[1] > 1.5 * counts[0] and max(counts[2:]) > 1.5 * counts[0], "no drain in the middle"


@pytest.mark.parametrize("kind", ["exact duplicates", "collapsed", "crowded"])
@pytest.mark.parametrize("tile", [(37, 48), (100, 60), None], ids=str)
def test_tiles_with_many_undecided_pairs_are_multiplied_again(kind, tile, taken, monkeypatch):
    """Where all are equal each pair is undecided; with 12 positives each, more often than there is room for."""
    again, calls = Levels._again, []
    monkeypatch.setattr(Levels, "_again", lambda *given: calls.append(given[1:]) or again(*given))
    monkeypatch.setattr(fused, "ROOM", 2 * 256 * 384)
    given, group = inputs().get(kind), torch.arange(240) % 20
    if kind == "crowded":
        given = Input(Embeddings(torch.full((20, 8), 0.3), torch.full((240, 8), 0.3), torch.arange(20), group))
    asked = [losses.load(name, {"margin": 0.0}) for name in ("triplet", "triplet_sh")]
    view = given.view()
    *found, ranks = sweep.run(view, [*(readers.of(loss, 0.01) for loss in asked), readers.Ranks()], tile=tile)
    assert calls and times(taken, view) == 1
    for ranked, pairs in zip(ranks, given.pairs(), strict=True):
        _, _, above, ties, _ = zip(*by_hand(pairs, sweep.TIES), strict=True)
        assert (ranked.above.tolist(), ranked.ties.tolist()) == (list(above), list(ties)), kind
    for loss, result in zip(asked, found, strict=True):
        for direction, pairs in zip(result, given.pairs(), strict=True):
            check(direction, loss, 0.01, pairs, f"{kind}, {loss}")


@pytest.mark.parametrize("directions", [(0, 1), (0,), (1,)], ids=str)
@pytest.mark.parametrize("kind", ["nearly equal", "many", "captions", "labelled", "ascending both ways"])
def test_a_second_pass_in_the_kernel_counts_the_same(kind, directions, many, taken, monkeypatch):
    """Survivors are given up by number, or at once; sums of float32 exponentials are right to 1e-5.

    The second pass has tiles of its own size: only "many" has more rows than a strip, and more columns than a block.
    """
    given, turn = inputs().get(kind) or (many if kind == "many" else nearly_equal(320)), iter([])
    view = given.view()
    if kind == "nearly equal":
        monkeypatch.setattr(_exponentials, "FIRST", 2**15)
        monkeypatch.setattr(_exponentials, "SPARE", 2**15)
    else:  # the next two are those of one reader
        make = lambda number: Survivors(-(2**16) if next(turn) in directions else number)  # noqa: E731
        monkeypatch.setattr(_exponentials, "Survivors", make)
    for loss, eps in ((losses.load("ntxent"), 1e-3), (losses.load("supcon"), 2e-3), (losses.load("ce_softmax"), 1e-5)):
        turn = iter((0, 1))
        ((_, _, first),) = unfused(given, [(loss, eps)])
        for tile, packed in ((TILE, 2**24), ((100, 60), 0)):
            monkeypatch.setattr(sweep, "PACKED", packed)
            turn = iter((0, 1))
            ((_, _, second),) = visited(given, [(loss, eps)], tile=tile)
            passes, least = times(taken, view), 1 + bool(set(view.directions) & set(directions))
            assert passes == least or (passes > 2 and loss.couples != "query"), loss  # a sum over all was uncertain
            for mine, theirs, pairs in zip(second, first, given.pairs(), strict=True):
                check(mine, loss, eps, pairs, f"{kind}, {loss}")
                assert torch.equal(mine["contributing"], theirs["contributing"])
                off = (mine["weight_above"] - theirs["weight_above"]).abs()
                assert (off <= SUMS * theirs["weight_above"]).all(), f"{loss}: {off.max()}"


def test_after_a_second_pass_a_few_uncertain_queries_are_looked_at_in_float64(taken, monkeypatch):
    """A threshold as near to one of the shares as float32 cannot tell, which lists of no length leave uncertain."""
    monkeypatch.setattr(_exponentials, "Survivors", lambda number: Survivors(-(2**16)))
    monkeypatch.setattr(_shares, "UNDECIDED", 0)
    exact, looked = sweep.View.exact_rows, []
    monkeypatch.setattr(sweep.View, "exact_rows", lambda *given: looked.append(given[2]) or exact(*given))
    given, loss = inputs()["random"], losses.load("ntxent", {"temperature": 0.05})
    eps = weighed(loss, given.pairs()[0])[0][3, 17].item()
    for moved in (eps * (1 - 1e-8), eps * (1 + 1e-8), eps):
        ((_, _, found),) = visited(given, [(loss, moved)])
        assert times(taken, given.view()) == 2
        assert 3 in torch.cat(looked) and len(looked[0]) < 50
        for direction, pairs in zip(found, given.pairs(), strict=True):
            check(direction, loss, moved, pairs, f"eps {moved}")
        looked.clear()


@pytest.mark.parametrize("metric", sweep.METRICS)
def test_rows_in_float64_are_those_of_the_tiles_in_float64(metric, monkeypatch):
    monkeypatch.setattr(sweep, "EXACTLY", (40, 32))
    for kind in ("raw", "captions", "labelled", "paired", "float16", "float64", "any length", "no negative"):
        if kind in LENGTHS and metric != "cosine":
            continue
        view = inputs()[kind].view(metric)
        whole = view.exact_tile(*(slice(0, len(side)) for side in view.sides))
        for direction, right in zip((0, 1), (whole, whole.T), strict=True):
            places = torch.randint(len(right), (97,), generator=torch.Generator().manual_seed(direction))
            parts, found = [], {}
            for part, score in view.exact_rows(direction, places):
                parts.append(part)
                found.setdefault(part.start, []).append(score)
            assert {part.start: part.stop for part in parts} == {0: 40, 40: 80, 80: 97}
            rows = torch.cat([torch.cat(each, dim=1) for each in found.values()])
            assert torch.equal(rows == -torch.inf, right[places] == -torch.inf), kind
            there = rows > -torch.inf  # squares of distances near 0 are sums that cancel
            assert torch.allclose(rows[there], right[places][there], rtol=1e-12, atol=1e-12 * view.most), kind


@pytest.fixture(scope="module")
def narrow(compiling):
    """The kernel for processors with AVX2, but not AVX-512."""
    process, made = compiling
    if process is None:
        pytest.skip("the kernel is built without AVX-512 anyway, or cannot be")
    assert process.wait() == 0
    library = ctypes.CDLL(str(made))
    for name, arguments in _build.ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes = [_build.KINDS[kind] for kind in arguments]
        function.restype = _build.RESULTS.get(name)
    return library


@pytest.mark.parametrize("kind", HARDEST[2:4] + HARDEST[5:6])
def test_the_kernel_without_wide_vectors_finds_the_same(kind, narrow, taken, workers, monkeypatch):
    for asked in (SOFT + HINGE, DISTANCES):
        given = inputs()[kind]
        view, first = given.view(asked[0][0].metric), visited(given, asked, tile=(256, 96))
        taken.clear()
        with monkeypatch.context() as patch:
            for module in (_build, _compiled, fused):
                patch.setattr(module, "loaded", lambda: narrow)
            assert (fused.strip(), fused._wide(), fused._tall(), fused.panel()) == (256, 8, 4, 24)
            for tile, packed, number in (((37, 16), 0, 1), ((100, 60), 2**24, 2), (None, 2**24, 1)):
                workers(number)
                patch.setattr(sweep, "PACKED", packed)
                second = visited(given, asked, tile=tile)
                assert times(taken, view) == 1
                for (loss, eps, found), (_, _, other) in zip(second, first, strict=True):
                    assert_same(loss, found, other, f"{kind}, {tile}")
                    for direction, pairs in zip(found, given.pairs(loss.metric), strict=True):
                        check_counts(direction, loss, eps, pairs, f"{kind}, {loss}")


@pytest.mark.parametrize("number", [1, 2])
def test_progress_is_told_after_each_strip_and_block(number, many, workers, monkeypatch):
    """Rows 0 to 700 in strips: of tiles of 600 rows, 256 + 256 + 88 + 100; of 100, seven. Columns in blocks of 192."""
    workers(number)
    for tile, packed, strips, blocks in (((600, 192), 2**24, 4, 1), ((600, 192), 0, 4, 4), ((100, 192), 0, 7, 4)):
        steps = []
        monkeypatch.setattr(sweep, "PACKED", packed)
        asked = [readers.of(*each) for each in SOFT[:1]]
        sweep.run(many.view(), asked, tile=tile, progress=lambda *step, steps=steps: steps.append(step))
        assert steps == [(k + 1, strips * blocks) for k in range(strips * blocks)]
