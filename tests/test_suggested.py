"""A command that cocos prints runs as it is printed: every one that these commands print is collected and run."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos.cli import app

MODEL = """
import numpy as np
import torch

def build(content):
    table = content["table"]
    return lambda texts: torch.stack([table[list(text.encode())].mean(dim=0) for text in texts])

def initials(texts):
    return np.array([[text.count(letter) + 0.1 for letter in "aeiourstln"] for text in texts])
"""
WORDS = "a red cat sat on the long mat while two dogs ran over green hills under some old stars".split()
# Words of a line that stand for something of the user's: such a line is advice, and not run.
PLACEHOLDER = re.compile(r"\b(FILE|DATA|MODEL|NAME|CHECKPOINT|FOLDER|KIND)\b|file\.py:function|\.\.\.")
LINE = re.compile(r"^(?:next: +| +)?(cocos [a-z]+ .*)$")
SMALL = "--batch-size 16"
TYPED = "--model own.py:build --data 'the pairs.jsonl' --split train"
COMMANDS = {
    "pairs": [
        f"count 'the rows.npz' {SMALL} -p temperature=0.5 --seed 3",
        f"count 'the rows.npz' {SMALL} --loss triplet",
        f"count 'the rows.npz' {SMALL} --loss triplet_sh -p margin=0.4",
        f"count 'the rows.npz' {SMALL} --loss triplet -p margin=0",
        f"count 'the rows.npz' {SMALL} --loss smoothap --eps 0.02",
        f"count 'the rows.npz' {SMALL} --loss contrastive --loss ntxent -p ntxent.temperature=0.2",
        f"count 'the rows.npz' {SMALL} -p temperature=20",
        "count 'the rows.npz' --batch-size all -p temperature=20 --eps 0.3",
        f"count 'the rows.npz' {SMALL} --convention ecir2022 --loss triplet",
        f"count shuffled.npz {SMALL}",
        f"count point.npz {SMALL}",
        "whatif 'the rows.npz' --settles --batch-size 16,32",
        "whatif 'the rows.npz' --settles --loss siglip --batch-size 16",
        f"whatif 'the rows.npz' --effective 4 {SMALL} --sample groups",
        "inspect 'the rows.npz'",
        f"audit 'the rows.npz' {SMALL}",
    ],
    "others": [
        f"count classes.npz --loss triplet {SMALL}",
        f"count classes.npz --loss contrastive_cosine {SMALL} --per-group 4",
        "count proxies.npz --loss proxynca",
        "count example --batches 3 --loss ntxent --loss triplet",
        "count proxies.npz --loss normalized_softmax -p scale=200",
        "inspect proxies.npz",
        "inspect classes.npz",
    ],
    "encoded": [
        f"count table.pt {TYPED} {SMALL}",
        f"count table.pt {TYPED} {SMALL} --loss triplet",
        f"whatif table.pt --settles {TYPED} --batch-size 16",
        f"whatif table.pt {TYPED} {SMALL} --effective 3",
        f"count 'the pairs.jsonl' --model own.py:initials --split train {SMALL}",
        "inspect 'the pairs.jsonl'",
        "encode 'the pairs.jsonl' --model own.py:initials --split train --out 'encoded rows.npz'",
    ],
    "run": [
        f"run 'a run' {SMALL} --loss ntxent -p temperature=0.2",
        f"run 'a run' {SMALL} --out 'the run.nc'",
        "inspect 'a run'",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of each kind, with spaces in their names."""
    path, draw = tmp_path_factory.mktemp("suggested"), np.random.default_rng(0)
    query = draw.normal(size=(48, 8)).astype(np.float32)
    candidate = query + draw.normal(size=query.shape).astype(np.float32)
    np.savez(path / "the rows.npz", query=query, candidate=candidate)
    np.savez(path / "shuffled.npz", query=query, candidate=candidate[draw.permutation(48)])
    np.savez(path / "point.npz", query=np.ones_like(query), candidate=np.ones_like(query))
    labels, proxies = np.repeat(np.arange(12), 4), draw.normal(size=(12, 8)).astype(np.float32)
    rows = (query + proxies[labels]).astype(np.float32)
    np.savez(path / "classes.npz", embeddings=rows, labels=labels)
    np.savez(path / "proxies.npz", embeddings=rows, labels=labels, proxies=proxies, proxy_labels=np.arange(12))
    (path / "a run").mkdir()
    for step, factor in ((1, 3.0), (2, 1.0), (5, 0.5)):
        near = query + factor * (candidate - query)
        np.savez(path / "a run" / f"epoch_{step}.npz", query=query, candidate=near)
    (path / "own.py").write_text(MODEL)
    torch.save({"table": torch.randn(256, 8, generator=torch.Generator().manual_seed(0))}, path / "table.pt")
    pairs = [
        {
            "query": " ".join(draw.choice(WORDS, 4)),
            "positive": f"{' '.join(draw.choice(WORDS, 4))} {place}",
            "split": "train" if place < 24 else "test",
        }
        for place in range(40)
    ]
    (path / "the pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in pairs))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_printed_commands_run_as_typed(kind, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    for typed in COMMANDS[kind]:
        done = CliRunner().invoke(app, shlex.split(typed))
        assert done.exit_code == 0, (typed, done.output)
        lines = [match[1] for match in map(LINE.match, done.output.splitlines()) if match]
        suggested = [line for line in lines if not PLACEHOLDER.search(line)]
        assert suggested or typed.startswith(("inspect", "audit", "whatif")), typed
        for line in suggested:
            for option in ("--model own.py:build", "--data 'the pairs.jsonl'", "--split train"):
                assert "--data" not in typed or option in line, line
            again = CliRunner().invoke(app, shlex.split(line)[1:])
            assert again.exit_code == 0, (typed, line, again.output)
    assert Path("run.png").exists() == (kind == "run")
