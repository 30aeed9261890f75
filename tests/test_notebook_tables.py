"""Tables that notebooks show of embeddings and checkpoints, with hostile names."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import cocos
from cocos import Embeddings

HOSTILE = "<script>alert('x')<script>\"&<b>"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.cells = set(), []

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.tags.add(tag)
        self.cells.append("")

    def handle_data(self, data):
        self.cells[-1] += data


def read(table):
    found = Reader()
    found.feed(table)
    assert found.tags == {"table", "caption", "tr", "th", "td"}
    text = [each for each in found.cells if each]
    return text[0], dict(zip(text[1::2], text[2::2], strict=True))


def test_a_table_of_embeddings_has_shapes_norms_groups_and_directions():
    side = torch.eye(4)[:3]
    given = Embeddings(side, 2 * side, directions=("i2t", "t2i"), names=(["a", "b", "c"], None))
    title, rows = read(given._repr_html_())
    assert title == "Embeddings"
    assert rows == {
        "query, norms": "(3, 4), 1 to 1",
        "candidate, norms": "(3, 4), 2 to 2",
        "dtype, device": "float32, cpu",
        "groups": "3",
        "directions": "i2t and t2i",
        "annotations": "names",
    }


def test_a_note_stands_in_the_table():
    rows = read(Embeddings(torch.eye(4), torch.eye(4), [0, 0, 1, 1], [0, 0, 1, 1])._repr_html_())[1]
    assert rows["directions"] == "s2s, a labelled set" and "labelled set" in rows["notes"]


def test_hostile_names_are_text():
    rows = read(Embeddings(torch.eye(4), 2 * torch.eye(4), directions=(HOSTILE, "t2i"))._repr_html_())[1]
    assert rows["directions"] == f"{HOSTILE} and t2i"


@pytest.mark.parametrize("folder", ["plain", HOSTILE])
def test_a_table_of_a_checkpoint_has_path_sha256_format_and_loss(tmp_path, folder):
    path = tmp_path / folder / "a.npz"
    path.parent.mkdir()
    np.savez(path, query=np.eye(4), candidate=np.eye(4)[::-1], temperature=0.07, **{HOSTILE: np.eye(2)})
    opened = cocos.open(path)
    title, rows = read(opened._repr_html_())
    assert title == "Checkpoint" and rows["path"] == str(path) and rows["sha256"] == opened.sha256[:12]
    assert rows["format"] == "embeddings" and re.search("ntxent: temperature 0.07", rows["recorded"])
    assert HOSTILE in rows["notes"]
