"""What rows carry: ids that are text or too large, names, pictures; and sides that are the same rows."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, measures, reports
from cocos.cli import app
from cocos.embeddings import annotations


def call(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])


def rows(number=12, width=6, seed=0):
    return np.random.default_rng(seed).normal(size=(number, width)).astype(np.float32)


CLASSES = np.arange(12) % 4
TRAP = {"query": rows(), "candidate": rows(), "query_group": CLASSES, "candidate_group": CLASSES}


def test_equal_sides_become_a_labelled_set():
    trap, labelled = Embeddings(**TRAP), Embeddings.labelled(rows(), CLASSES)
    assert trap.shared and trap.directions == ("s2s",) and "read as a labelled set" in trap.notes[0]
    assert "embeddings=, labels=" in trap.notes[0] and not labelled.notes
    for one in (trap, trap.to(dtype=torch.float64), trap.flip().flip()):
        assert len(one.notes) == 1 and one.shared
    found, right = (measures.evaluate(one) for one in (trap, labelled))
    assert found["R@1"].values.ravel()[0] == right["R@1"].values.ravel()[0] < 100
    assert "read as a labelled set" in found.attrs["notes"]
    found, right = (measures.count(one, "ntxent", batch_size="all") for one in (trap, labelled))
    assert reports.document("count", found)["directions"] == reports.document("count", right)["directions"]
    assert "read as a labelled set" in found.attrs["notes"]


def test_equal_sides_in_files_become_labelled(tmp_path):
    np.savez(tmp_path / "trap.npz", **TRAP)
    np.savez(tmp_path / "right.npz", embeddings=rows(), labels=CLASSES)
    for command, *options in (("count", "--batch-size", "all"), ("evaluate",)):
        results = [call(command, tmp_path / f"{name}.npz", *options, "--json") for name in ("trap", "right")]
        assert results[0].exit_code == 0 and "read as a labelled set" in results[0].stderr
        assert len({json.dumps(json.loads(result.stdout)["directions"]) for result in results}) == 1


def test_similar_sides_stay_two():
    other = rows()
    other[3, 2] += 1e-6
    assert not Embeddings(**TRAP | {"candidate": other}).shared
    assert not Embeddings(**TRAP | {"candidate_group": np.roll(CLASSES, 1)}).shared
    single = Embeddings(rows(), rows())
    assert not single.shared and single.directions == ("q2c", "c2q")
    assert "each is the only positive of itself" in single.notes[0]
    assert Embeddings(**TRAP, directions=("s2p",)).proxies


def test_text_ids_are_numbered_together(tmp_path):
    query, candidate = list("fab"), ["a", "f", "b", "f"]
    made = [
        Embeddings(rows(3), rows(4), query, candidate),
        Embeddings(rows(3), rows(4), np.array(query), np.array(candidate, dtype=object)),
        Embeddings(rows(3), rows(4), [each.encode() for each in query], candidate),
    ]
    for one in made:
        assert one.query_group.tolist() == [2, 0, 1] and one.candidate_group.tolist() == [0, 2, 1, 2]
    labelled = Embeddings.labelled(rows(4), ["cat", "dog", "cat", "dog"], rows(2), ["dog", "cat"])
    assert labelled.query_group.tolist() == [0, 1, 0, 1] and labelled.candidate_group.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ((["a", 1, "b"], ["a", "b", "b"]), "query_group: row 1 is int, expected text"),
        ((["a", "c", "b"], [0, 1, 1]), "query_group is text and candidate_group is numbers"),
        (([b"a", b"\xff", b"b"], ["a", "b", "b"]), "row 1 is b'\\xff', expected UTF-8"),
        (([1, 2**63, 2], [1, 1, 2]), "query_group: list, expected integers or text"),
    ],
)
def test_ambiguous_ids_are_refused(ids, sentence):
    with pytest.raises(InputError) as error:
        Embeddings(rows(3), rows(3, seed=1), *ids)
    assert sentence in str(error.value)


def test_repr_is_one_line(tmp_path):
    embeddings = Embeddings(rows(3), rows(4), list("fab"), list("afbf"), names=(list("xyz"), None))
    np.savez(tmp_path / "rows.npz", query=rows(3), candidate=rows(3, seed=1))
    shown = [repr(each) for each in (embeddings, cocos.scores.pairs(embeddings), cocos.open(tmp_path / "rows.npz"))]
    for text in shown:
        assert "\n" not in text and "tensor" not in text and len(text) < 250
    assert shown[0] == "Embeddings(query=(3, 6), candidate=(4, 6), float32 on cpu, q2c and c2q)"
    assert shown[1].startswith("Pairs(scores=(3, 4), 4 positive, 8 negative)")
    assert "format=embeddings" in shown[2] and "rows.npz" in shown[2]


def test_pictures_outside_the_folder_are_refused(tmp_path):
    Image.fromarray(np.full((400, 300, 3), 7, dtype=np.uint8)).save(tmp_path / "a.png")
    paths = (str(tmp_path / "a.png"), "", str(tmp_path / "none.png"))
    assert annotations.picture(paths, 0).shape == (256, 192, 3) and annotations.picture(paths, 1) is None
    with pytest.raises(InputError, match=r"none\.png"):
        annotations.picture(paths, 2)
    for path in ("../b.png", "/etc/passwd", "C:\\a.png", "a/../../b.png", "a\n.png"):
        given = {"query_image": np.array([path, "a.png"])}
        np.savez(tmp_path / "rows.npz", query=rows(2), candidate=rows(2, seed=1), **given)
        with pytest.raises(InputError, match="expected a path inside of"):
            cocos.open(tmp_path / "rows.npz")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"names": ["a", "b"]}, "names: list, expected a pair: of the queries, of the candidates"),
        ({"names": (["a"], None)}, "names of query: 1 texts, expected 2 texts"),
        ({"names": ([1, 2], None)}, "names of query: list, expected 2 texts"),
        ({"pictures": (np.zeros((2, 4, 4)), None)}, "pictures of query: float64 of shape (2, 4, 4), expected uint8"),
        ({"pictures": (None, ["a"])}, "pictures of candidate: 1 texts, expected 2 texts"),
    ],
)
def test_unusable_names_and_pictures_are_refused(given, sentence):
    with pytest.raises(InputError) as error:
        Embeddings(rows(2), rows(2, seed=1), **given)
    assert sentence in str(error.value)


@pytest.fixture
def shop(tmp_path):
    """A file whose queries have names and pictures, and whose candidates have paths."""
    draw = np.random.default_rng(0)
    group = np.arange(6).repeat(2)
    candidate = (rows(6)[group] + 0.3 * draw.normal(size=(12, 6))).astype(np.float32)
    for row in range(11):
        Image.fromarray(np.full((20, 30, 3), 20 * row, dtype=np.uint8)).save(tmp_path / f"{row}.png")
    np.savez(
        tmp_path / "shop.npz",
        query=rows(6),
        candidate=candidate,
        query_group=np.arange(6),
        candidate_group=group,
        query_name=np.array([f"query {k} $\\frac{{$" for k in range(6)]),
        candidate_name=np.array([f"candidate {k}" if k else "" for k in range(12)]),
        query_image=np.full((6, 8, 8, 3), 9, dtype=np.uint8),
        candidate_image=np.array([f"{k}.png" for k in range(11)] + [""]),
    )
    return tmp_path / "shop.npz"


def test_items_show_names_and_pictures(shop):
    found = cocos.open(shop).items()
    for direction in ("q2c", "c2q"):
        flip = 1 if direction == "q2c" else -1
        query, candidate = found.texts(direction)[::flip]
        assert (query(3), candidate(5), candidate(0)) == ("query 3 $\\frac{$", "candidate 5", "row 0, group 0")
        query, candidate = found.pictures(direction)[::flip]
        assert query(3).shape == (8, 8, 3) and (candidate(5) == 100).all() and candidate(11) is None
    assert cocos.open(shop).embed().names and cocos.open(shop).embed().pictures


def test_plots_show_names_and_pictures(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for direction, words in (("q2c", "candidate 5"), ("c2q", "query 2")):
        options = ("--row", 3, "--direction", direction, "--batch-size", "all", "--out", "a.png")
        done = call("plot", "contributors", shop, *options)
        assert done.exit_code == 0 and words in done.stdout, done.output
        done = call("plot", "retrievals", shop, "--direction", direction, "--out", "b.png")
        assert done.exit_code == 0, done.output
    done = call("plot", "contributors", shop, "--row", 3, "--batch-size", "all", "--json")
    document = json.loads(done.stdout)["directions"]["q2c"]
    assert document["query_text"].startswith("query 3") and document["text"]["1"].startswith("candidate")
    (tmp_path / "5.png").unlink()
    done = call("plot", "retrievals", shop, "--queries", 6, "--out", "c.png")
    assert done.exit_code == 2 and "5.png: cannot be read" in done.stderr and done.stderr.count("\n") == 1
