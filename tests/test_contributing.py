"""CONTRIBUTING says what an addition costs: one new file, which everything finds by its name."""

import re
import shutil
from pathlib import Path

import pytest
import torch

import cocos
from cocos import losses, measures
from cocos.engine import readers

ROOT = Path(__file__).parent.parent
TABLE = dict(
    re.findall(
        r"^\| (\w+) \| 1(?:, and a word)? \| `([\w/]+)/` \|",
        (ROOT / "CONTRIBUTING.md").read_text("utf-8"),
        re.MULTILINE,
    )
)
# What is put into a copy of the repository, and an expression that finds it there.
FILES = {
    "measure": """
import xarray as xr
def mine(loss="ntxent", *, points: int = 3) -> xr.Dataset:
    '''Count to a number.

    Args:
        loss: any.
        points: how far.
    '''
    return xr.Dataset({"number": ("place", list(range(points)))}, attrs={"measure": "mine"})
""",
    "plot": """
def mine(dataset, *, ax=None):
    '''Draw numbers.

    Args:
        dataset: of the measure.
        ax: where.
    '''
    ax.plot(dataset["number"])
    return ax
""",
    "format": "def sniff(file): return file.path.suffix == '.mine'\ndef load(file, data): raise NotImplementedError\n",
    "data": """
def splits(path): return ('train',) if path.suffix == '.mine' else ()
def load(split, path): return 3
""",
    "reader": """
def reads(loss, eps, *, spread, relative):
    return "found" if type(loss).__name__ == "ProxyAnchor" else None
""",
    "detector": """
from dataclasses import dataclass
from cocos.monitor.detectors._history import alarm
__all__ = ["Mine"]
@dataclass(frozen=True)
class Mine:
    def __call__(self, history):
        return alarm(self, history, 1.0, 0.0, "found")
""",
}
FOUND = {
    "loss": "losses.load('mine').margin == 0.2",
    "measure": "measures.mine(points=2).sizes['place'] == 2",
    "plot": "plots.mine(measures.mine(), ax=Figure().subplots()).has_data()",
    "format": "formats.find(files.File(pathlib.Path('a.mine'))).__name__.endswith('mine')",
    "data": "data.find('a.mine').load('train') == 3",
    "reader": "readers.of(losses.load('proxy_anchor')) == 'found'",
    "detector": "detectors.check([{}], [detectors.load('mine')])[0].sentence == 'mine: found'",
}
IMPORTS = """
from matplotlib.figure import Figure
from cocos import data, detectors, losses, measures, plots
import pathlib
from cocos.checkpoints import files, formats
from cocos.engine import readers
"""


def test_one_file_is_all_that_an_addition_needs(fresh, tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "cocos", tmp_path / "cocos", ignore=ignored)
    triplet = (ROOT / "cocos" / "losses" / "triplet.py").read_text("utf-8")
    for kind, text in {**FILES, "loss": re.sub(r"\bTriplet\b", "Mine", triplet)}.items():
        (tmp_path / TABLE[kind] / "mine.py").write_text(text, "utf-8")
    for kind, neighbour in (("format", "iresnet"), ("data", "beir"), ("reader", "hinge")):  # a word in a tuple
        known = tmp_path / TABLE[kind] / "__init__.py"
        known.write_text(known.read_text("utf-8").replace(f" {neighbour},", f" {neighbour}, mine,"), "utf-8")
    (tmp_path / "a.mine").write_text("mine", "utf-8")
    asked = "".join(f"print({kind!r}, {expression})\n" for kind, expression in FOUND.items())
    here = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path[:] = ['', *sys.path]\n"
    done = fresh(here + IMPORTS + asked)
    assert done.stdout.splitlines() == [f"{kind} True" for kind in FOUND], done.stderr
    assert FOUND.keys() <= TABLE.keys()


# A statistic of a loss's own: a method of the loss, and a row of the table.
OWN_STATISTIC = """
    def extra(self, pairs, eps):
        '''Count the negatives above a score of a half, (Q,).'''
        return {"near": ((pairs.scores > 0.5) & pairs.negative).sum(dim=1)}
"""
OWN_ROW = """
    Statistic("near", "negatives above a half", by_loss=True, numbers=(
        Number(row="negatives that are near"),
    )),
"""
COUNTED = """
import torch
from cocos import Embeddings, losses, measures, reports
embeddings = Embeddings(torch.eye(2), torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
data = measures.count(embeddings, losses.load("mine"), batch_size="all")
print("of a query", data["near_per_query"].sel(direction="q2c").values.tolist())
print("of a batch", *data["near"].attrs.values(), data["near"].values.tolist())
print("in JSON", reports.document("count", data)["directions"]["q2c"]["near"])
(shown,) = (row for row in reports.table("count", data).rows if "near" in row[0])
print("in the table", shown)
"""


def test_a_loss_with_a_statistic_of_its_own_is_the_loss_and_one_row(fresh, tmp_path):
    """Counted, averaged, labelled, in the JSON document and in the table."""
    shutil.copytree(ROOT / "cocos", tmp_path / "cocos", ignore=shutil.ignore_patterns("__pycache__"))
    own = (ROOT / "cocos" / "losses" / "multi_similarity.py").read_text("utf-8")
    (tmp_path / "cocos" / "losses" / "mine.py").write_text(re.sub(r"\bMultiSimilarity\b", "Mine", own) + OWN_STATISTIC)
    rows = tmp_path / "cocos" / "counting" / "statistics.py"
    rows.write_text(rows.read_text("utf-8").replace("STATISTICS = (\n", f"STATISTICS = ({OWN_ROW}", 1), "utf-8")
    done = fresh(f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path[:] = ['', *sys.path]\n{COUNTED}")
    assert done.stdout.splitlines() == [
        "of a query [[1.0, 1.0]]",
        "of a batch negatives above a half, mean over all queries candidates [[1.0], [1.0]]",
        "in JSON {'mean': 1.0, 'std': None}",
        "in the table ('  negatives that are near', '1.00', '1.00')",
    ], done.stderr


@pytest.mark.parametrize(("name", "base"), [("ntxent", "NTXent"), ("triplet", "Triplet"), ("siglip", "SigLIP")])
def test_a_statistic_of_a_loss_that_a_reader_could_read_is_not_lost(name, base):
    """A reader of what a loss states knows nothing of `extra`."""
    plain = getattr(losses, base)

    class Own(plain):
        def extra(self, pairs, eps):
            return {"clamped": pairs.positive.any(dim=1).to(pairs.scores.dtype)}

    rows = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    found = measures.count(cocos.Embeddings(rows, rows + 0.1), Own(), batch_size=8)
    assert (found["clamped_per_query"] == 1).all() and readers.has(plain()) and not readers.has(Own())
    usual = measures.count(cocos.Embeddings(rows, rows + 0.1), plain(), batch_size=8)
    assert (found["contributing"] == usual["contributing"]).all()
