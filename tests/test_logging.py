"""Notes of the library go to the logger `cocos`: silent by default, shown at INFO."""

import logging

import numpy as np
import torch

import cocos
from cocos import Embeddings
from cocos.embeddings import sampling

NOTED = "import cocos, torch; cocos.Embeddings(torch.eye(4), torch.eye(4))"
ASKED = f"import logging; logging.basicConfig(level=logging.INFO); {NOTED}"


def notes(caplog):
    found = [record.getMessage() for record in caplog.records if record.name.startswith("cocos.")]
    caplog.clear()
    return found


def test_notes_on_embeddings_batches_and_files_are_logged_once(caplog, tmp_path):
    caplog.set_level(logging.INFO, "cocos")
    sides = torch.eye(4), torch.eye(4)
    (note,) = notes_of = Embeddings(*sides).notes
    assert notes(caplog) == [f"note: {each}" for each in notes_of] and "are equal" in note
    plan = sampling.plan(Embeddings(sides[0], 2 * sides[1]), batch_size=9)
    assert len(plan.notes) == 1 and notes(caplog) == [f"note: {plan.notes[0]}"]
    np.savez(tmp_path / "a.npz", query=np.eye(4), candidate=np.eye(4)[::-1], other=np.eye(2))
    opened = cocos.open(tmp_path / "a.npz")
    assert len(opened.notes) == 2 and notes(caplog) == [f"note: {each}" for each in opened.notes]


def test_notes_are_silent_until_they_are_asked_for(fresh):
    for code, lines in ((NOTED, 0), (ASKED, 1)):
        done = fresh(code)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (0, "", lines)
