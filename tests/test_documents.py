"""The keys and types of every JSON document: of all commands and all kinds of plots, as documents.json holds them.

After a change that is meant: `python tests/test_documents.py`, and read the difference.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer.main
from typer.testing import CliRunner

import cocos
import test_page
from cocos import measures, results
from cocos.cli import app, plot
from cocos.reports import page

FILE = Path(__file__).with_name("documents.json")
# Of every command, lines that end with a document; the embeddings lie in the current folder.
LINES = (
    "audit e.npz",
    *("count e.npz", "count e.npz --loss smoothap --n90 --metrics", "count e.npz --loss ntxent --loss triplet"),
    *("count set.npz --loss triplet_euclidean", "diff a.nc b.nc"),
    *(
        "diff e.npz f.npz",
        "plot dtp steps",
        "encode p.jsonl --model mine.py:texts --out x.npz",
    ),
    *(
        "evaluate e.npz",
        "evaluate set.npz --verification",
        "inspect e.npz",
    ),
    *(
        "plot landscape --f1 warp",
        "losses",
        "losses ntxent",
        "plot count e.npz",
    ),
    *(
        "whatif e.npz --what batch_size=8",
        "report e.npz --out page.html",
        "run store.jsonl",
    ),
    *("whatif e.npz --effective 3", "whatif e.npz --settles --batch-size 8", "verify ntxent"),
    *("verify --same-as ntxent supcon e.npz", "whatif e.npz"),
)
# Keys of what depends on the data: the numbers of a finding.
FREE = ("numbers",)
# A model of texts.
MODEL = """
import torch

def texts(items):
    return torch.tensor([[float(ord(letter)) for letter in each] for each in items])
"""
GROUP = typer.main.get_command(app)
# Options that kinds of plots need beside their file.
NEEDED = {"contributors": "--row 0", "sources": "--loss mnrl -p directions=query-candidate,query-query"}


def shape(value):
    """Keys and types of a document; equal entries of a list or dict are listed once, and more than ten numeric keys."""
    if isinstance(value, dict):
        found = {name: "dict" if name in FREE else shape(each) for name, each in sorted(value.items())}
        alike = {json.dumps(each) for each in found.values()}
        numeric = len(found) > 10 and all(re.fullmatch(r"-?[\d.]+(e-?\d+)?", name) for name in found)
        keys = "numbers" if numeric else ", ".join(found)
        return {keys: next(iter(found.values()))} if len(found) > 1 and len(alike) == 1 else found
    if isinstance(value, list):
        found = list({json.dumps(each): each for each in map(shape, value)}.values())
        return [merged(found)] if found and all(isinstance(each, dict) for each in found) else sorted(found, key=str)
    return "null" if value is None else type(value).__name__


def merged(several):
    """One shape for objects of a list: a key that some lack ends with a question mark."""
    keys = {key: [each[key] for each in several if key in each] for each in several for key in each}
    found = {}
    for key, values in keys.items():
        kinds = {json.dumps(each): each for each in values}
        name = key if len(values) == len(several) else f"{key}?"
        found[name] = next(iter(kinds.values())) if len(kinds) == 1 else sorted(map(str, kinds.values()))
    return found


def drawn():
    """A line for every kind of plot that `cocos plot` draws."""
    for kind in plot.KINDS:
        if kind not in {"count", "dtp", "landscape"}:
            source = "--loss ntxent" if kind in plot.WITHOUT_FILE else "e.npz"
            yield f"plot {kind} {source} {NEEDED.get(kind, '')}".strip()


def place(folder):
    """Write the files that the lines read."""
    rng = np.random.default_rng(0)
    image, group = rng.normal(size=(40, 6)), np.repeat(np.arange(40), 2)
    for name, noise in (("e", 0.5), ("f", 0.9)):
        caption = image[group] + noise * rng.normal(size=(80, 6))
        np.savez(
            folder / f"{name}.npz", query=image, candidate=caption, query_group=np.arange(40), candidate_group=group
        )
    np.savez(folder / "set.npz", embeddings=image, labels=np.arange(40) % 4)
    for step in (1, 2):
        (folder / "steps").mkdir(exist_ok=True)
        np.savez(
            folder / "steps" / f"{step}.npz",
            embeddings=image,
            labels=group[:40],
            proxies=image[:20],
            proxy_labels=np.arange(20),
        )
    embeddings, other = (cocos.open(folder / f"{name}.npz").embed() for name in "ef")
    for k, name in enumerate("ab"):
        counted = measures.count((embeddings, other)[k % 2], batch_size=8 + 8 * k, metrics=True)
        results.save(counted, folder / f"{name}.nc")
    for name in ("store", "other"):
        with cocos.Monitor("ntxent", store=folder / f"{name}.jsonl") as monitor:
            for step in range(3):
                monitor(embeddings.query[:16], embeddings.candidate[:32:2], step=step)
    (folder / "p.jsonl").write_text(
        "".join(json.dumps({"query": f"q{k}", "positive": f"p{k}"}) + "\n" for k in range(4))
    )
    (folder / "mine.py").write_text(MODEL)


def written(line):
    """The shape of the document that a line prints, and of nothing else."""
    done = CliRunner().invoke(app, [*line.split(), "--json", "--quiet"])
    assert done.exit_code in {0, 1}, (line, done.stderr)
    return shape(json.loads(done.stdout))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    place(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(page, "_pictured", test_page.drawing_once())
        yield folder


@pytest.mark.parametrize("line", [*LINES, *drawn()])
def test_a_document_has_the_keys_and_types_that_are_noted(line, here):
    assert written(line) == json.loads(FILE.read_text("utf-8"))[line]


def test_every_command_has_a_line_and_every_line_is_noted():
    assert {line.split()[0] for line in LINES} == set(GROUP.commands)
    assert list(json.loads(FILE.read_text("utf-8"))) == [*LINES, *drawn()]


def wrong(line, folder):
    """The line with a file that is not there in the place of each, and with outputs that cannot be written."""
    words = line.split()
    for k, word in enumerate(words):
        if (folder / word).is_file() and words[k - 1] not in {"--out", "--badge"}:
            yield [*words[:k], f"gone{Path(word).suffix}", *words[k + 1 :]]
    if "--out" in {name for each in GROUP.get_command(None, words[0]).params for name in each.opts}:
        some = [word for k, word in enumerate(words) if word != "--out" and words[k - 1] != "--out"]
        yield from ([*some, "--out", out] for out in ("nowhere/out.nc", "nowhere/out.png", "out.txt", "y" * 300))
    yield [*words, "--no-such-option"]


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_line_is_one_sentence_and_writes_nothing(line, here):
    before = {each: each.stat().st_mtime_ns for each in here.rglob("*")}
    for words in wrong(line, here):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, done.stdout) == (2, ""), (words, done.output)
        assert done.stderr.startswith("cocos: ") and done.stderr.count("\n") == 1, (words, done.stderr)
    assert {each: each.stat().st_mtime_ns for each in here.rglob("*")} == before


if __name__ == "__main__":
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        place(Path(folder))
        os.chdir(folder)
        shapes = {line: written(line) for line in [*LINES, *drawn()]}
    rows = ",\n".join(f"{json.dumps(line)}: {json.dumps(each)}" for line, each in shapes.items())
    FILE.write_text(f"{{\n{rows}\n}}\n", "utf-8")
