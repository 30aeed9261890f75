"""Folders of BEIR as training data: texts of both sides, and judged pairs of a split."""

import gzip
import json

import pytest

import cocos
from cocos import InputError

CORPUS = {
    "d1": ("Cats", "They purr."),
    "d2": ("", "Dogs bark."),
    "d3": ("Cows", "They moo."),
    "d4": ("", "No one asks."),
}
QUERIES = {"q1": "which animal purrs", "q2": "which one barks", "q3": "which moos"}
JUDGED = (("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d2", 1), ("q3", "d3", 1), ("q3", "d1", 1))


def beir(folder, judged=JUDGED, *, zipped=False):
    """Write a data set of four documents and three queries."""
    (folder / "qrels").mkdir()
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, each)) for each in judged)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    corpus = [json.dumps({"_id": key, "title": title, "text": text}) for key, (title, text) in CORPUS.items()]
    queries = [json.dumps({"_id": key, "text": text, "metadata": {}}) for key, text in QUERIES.items()]
    for name, lines in (("corpus", corpus), ("queries", queries)):
        data = "\n".join(lines).encode()
        (folder / f"{name}.jsonl{'.gz' if zipped else ''}").write_bytes(gzip.compress(data) if zipped else data)
    return folder


@pytest.mark.parametrize("zipped", (False, True))
def test_relevant_documents_are_positives_and_others_hard_negatives(tmp_path, zipped):
    folder = beir(tmp_path, zipped=zipped)
    assert cocos.data.recognised(folder) == "beir" and cocos.data.splits("beir", folder) == ("test",)
    found = cocos.data.load("beir", "test", folder)
    assert found.query.items == tuple(QUERIES.values())
    assert found.candidate.items == ("Cats They purr.", "Dogs bark.", "Cows They moo.")
    query, candidate = found.query.group.tolist(), found.candidate.group.tolist()
    assert query[0] == candidate[0] == query[2] == candidate[2] != query[1] == candidate[1]  # d1 is relevant to two
    assert found.negatives.tolist() == [[1], [-1], [-1]]


def test_judgements_of_unknown_ids_are_left_out_and_named(tmp_path):
    found = cocos.data.load("beir", "test", beir(tmp_path, (*JUDGED, ("q1", "d9", 1), ("q8", "d1", 1))))
    said = "judgements of unknown ids are left out: 2, such as document 'd9', which corpus.jsonl does not have"
    assert said in found.notes
    assert len(found.query.items) == 3


@pytest.mark.parametrize(
    ("judged", "sentence"),
    [
        ((("q1", "d1", "good"),), "test.tsv, row 0: grade 'good', expected a number"),
        ((("q8", "d9", 1),), "no judgement names a query of queries.jsonl and a document of corpus.jsonl"),
        ((("q1", "d1", 0),), "no row has a positive"),
    ],
)
def test_bad_judgements_get_one_sentence(tmp_path, judged, sentence):
    with pytest.raises(InputError, match=sentence):
        cocos.data.load("beir", "test", beir(tmp_path, judged))


def test_a_split_that_is_not_there_gets_one_sentence(tmp_path):
    with pytest.raises(InputError, match="split of .* 'train'"):
        cocos.data.load("beir", "train", beir(tmp_path))


def test_texts_without_ids_get_one_sentence(tmp_path):
    folder = beir(tmp_path)
    (folder / "corpus.jsonl").write_text('{"id": "d1", "text": "They purr."}\n')
    with pytest.raises(InputError, match="there is no field '_id', expected _id, text and optionally title"):
        cocos.data.load("beir", "test", folder)
