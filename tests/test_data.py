"""Training data: layouts times properties."""

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import cocos
import layouts
from cocos import data
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import inspect
from cocos.cli import app
from layouts import lines, picture, table

TEXTS = ("a dog, running", "the dog", "one cat", 'a "quoted" mat')
ROWS = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)


def write_pairs(name):
    return lambda folder: table(folder / name, layouts.PAIRS)


def write_labels(name):
    return lambda folder: table(folder / name, layouts.LABELLED)


def write_captions(name, *options, **more):
    return lambda folder: layouts.caption_table(folder / name, *options, **more)


def write_arrays(name, **content):
    return lambda folder: layouts.arrays(folder / name, **content)


def saved(folder):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(layouts.PAIRS)
    datasets.DatasetDict({"train": rows, "test": rows.select([2])}).save_to_disk(folder / "saved")
    return folder / "saved"


def parquet(folder):
    pytest.importorskip("pyarrow")
    return table(folder / "a.parquet", layouts.PAIRS)


def split_folders(folder):
    layouts.class_folders(folder / "all" / "train")
    layouts.class_folders(folder / "all" / "test")
    return folder / "all"


PAIR = ("pairs", ("train",), [0, 1, 2], [0, 1, 2, 3])
LABEL = ("pairs", ("train",), [0, 0, 1], None)
CAPTION = ("captions", ("train",), [0, 1, 2], [0, 0, 1, 2])
CLASSES = ("image_lists", ("train", "test"), [0, 0, 1, 1], None)
IMAGES = {"images": ROWS, "labels": np.array([3, 3, 5, 5])}
# layout: (writer, format, splits, groups of the first split, numbered by first occurrence: queries and candidates)
LAYOUTS = {
    "pairs jsonl": (write_pairs("a.jsonl"), *PAIR),
    "pairs jsonl.gz": (write_pairs("a.jsonl.gz"), *PAIR),
    "pairs json": (write_pairs("a.json"), *PAIR),
    "pairs csv": (write_pairs("a.csv"), *PAIR),
    "pairs tsv": (write_pairs("a.tsv"), *PAIR),
    "pairs parquet": (parquet, *PAIR),
    "saved dataset": (saved, "pairs", ("train", "test"), *PAIR[2:]),
    "labels jsonl": (write_labels("a.jsonl"), *LABEL),
    "labels csv": (write_labels("a.csv"), *LABEL),
    "beir": (layouts.beir, "beir", ("test",), [0, 1, 0], [0, 1, 0]),
    "beir gz": (lambda folder: layouts.beir(folder, zipped=True), "beir", ("test",), [0, 1, 0], [0, 1, 0]),
    "caption table": (write_captions("captions.txt"), *CAPTION),
    "caption tsv": (write_captions("captions.tsv", ("Caption", "Image"), "\t", turned=True), *CAPTION),
    "clip tsv": (write_captions("clip.tsv", ("filepath", "title"), "\t"), *CAPTION),
    "flickr8k folder": (lambda folder: layouts.caption_table(folder / "captions.txt").parent, *CAPTION),
    "coco": (layouts.coco, "captions", ("train",), [0, 1], [0, 0, 1]),
    "karpathy": (layouts.karpathy, "captions", ("train", "val", "test"), [0, 1, 2], [0, 0, 1, 1, 2, 2]),
    "flickr tokens": (layouts.tokens, "captions", ("train",), [0, 1], [0, 0, 1]),
    "bleeker": (layouts.bleeker, "bleeker", ("train", "val", "test"), [0, 1, 2, 3], [0, 0, 1, 1, 2, 2, 3, 3]),
    "precomputed": (layouts.precomputed, "precomputed", ("train",), [0, 1], [0] * 5 + [1] * 5),
    "precomputed x 5": (
        lambda folder: layouts.precomputed(folder, stored=5), "precomputed", ("train",), [0, 1], [0] * 5 + [1] * 5,
    ),
    "images npz": (write_arrays("a.npz", **IMAGES), "arrays", ("train",), [0, 0, 1, 1], None),
    "features": (
        write_arrays("a.npz", features=ROWS[:, 0].astype(">f4"), labels=np.array(list("baab"))),
        "arrays", ("train",), [0, 1, 1, 0], None,
    ),
    "captions npz": (
        write_arrays("a.npz", images=ROWS[:2], captions=np.array([["a", "b"], ["c", "d"]])),
        "arrays", ("train",), [0, 1], [0, 0, 1, 1],
    ),
    "class folders": (layouts.class_folders, "image_folders", ("train",), [0, 0, 1, 1], None),
    "split folders": (split_folders, "image_folders", ("test", "train"), [0, 0, 1, 1], None),
    "birds": (layouts.birds, *CLASSES),
    "birds images": (lambda folder: layouts.birds(folder) / "images", *CLASSES),
    "cars": (layouts.cars, *CLASSES),
    "cars devkit": (layouts.cars_devkit, "image_lists", ("train", "test"), [0, 1, 0, 1], None),
    "products": (layouts.products, *CLASSES),
    "clothes": (layouts.clothes, *CLASSES),
    "clothes img": (lambda folder: layouts.clothes(folder, ""), *CLASSES),
    "landmarks": (layouts.landmarks, "image_lists", ("train",), [0, 0, 1, 1], None),
    "emoji": (
        lambda folder: data.emoji_captions.EXAMPLE_FOLDER, "emoji_captions", ("train", "val", "test"), None, None,
    ),
}  # fmt: skip
IMAGE_LISTS = [name for name, row in LAYOUTS.items() if row[1] == "image_lists"]


def numbered(*groups):
    """Number groups by first occurrence, over both sides."""
    order = {}
    return [None if ids is None else [order.setdefault(int(group), len(order)) for group in ids] for ids in groups]


@pytest.fixture(params=LAYOUTS)
def layout(request, tmp_path):
    path = LAYOUTS[request.param][0](tmp_path / "set")
    return path, *LAYOUTS[request.param][1:]


def test_layout_gives_splits_and_groups(layout):
    path, kind, splits, query, candidate = layout
    source = data.find(path)
    assert (source.kind, source.splits) == (kind, splits)
    rows = source.load(splits[0])
    groups = rows.query.group, None if rows.candidate is None else rows.candidate.group
    if query is not None:
        assert numbered(*groups) == numbered(query, candidate)
    assert (rows.candidate is None) == (rows.directions == ("s2s",))


def test_identity_repeats_and_depends_on_split(layout):
    path, _, splits, *_ = layout
    source = data.find(path)
    first = source.load(splits[0]).identity
    assert first == data.find(path).load(splits[0]).identity


def test_images_are_uint8_of_channels_first(layout):
    path, _, splits, *_ = layout
    side = data.find(path).load(splits[0]).query
    if side.kind == "image":
        assert side.items[1].dtype == torch.uint8 and side.items[1].shape[0] == 3
        assert len(side.items[0:2]) == 2


def test_inspect_recommends_a_command_that_works(layout, tmp_path, monkeypatch):
    path, _, splits, *_ = layout
    monkeypatch.chdir(tmp_path)
    lines(
        tmp_path / "mine.py",
        "import torch",
        "def model(rows):",
        "    if isinstance(rows, list):",
        "        return torch.tensor([[len(row), row.count('a'), 1.0] for row in rows])",
        "    return torch.as_tensor(rows).flatten(1)[:, :3].float() + 1",
    )
    words = inspect(path)["next"].replace("MODEL", "mine.py:model").split()[1:]
    done = CliRunner().invoke(app, [*words, "--split", splits[0], "--device", "cpu"])
    assert done.exit_code == 0, done.stderr
    assert len(cocos.open("embeddings.npz").embed(device="cpu").query)


# Texts


def load(path, split="train", columns=None):
    return data.find(path, {"columns": columns} if columns else None).load(split)


def test_hard_negatives_are_candidate_rows(tmp_path):
    rows = load(table(tmp_path / "a.jsonl", layouts.PAIRS))
    assert rows.candidate.items == ("it purrs", "it barks", "it flies", "it swims")
    assert rows.negatives.tolist() == [[1, 2], [0, -1], [3, -1]]


@pytest.mark.parametrize(
    ("rows", "queries", "candidates", "negatives"),
    [
        ([["a", "x", "y"], ["b", "v", "w"]], "ab", "xvyw", [[2], [3]]),
        ([{"query": "a", "pos": ["x"], "neg": ["y"]}, {"query": "b", "pos": ["v"], "neg": ["w"]}], "ab", "xvyw",
         [[2], [3]]),
        ([{"Question": "a", "Answer": "x", "hard_negative": "y"}, {"Question": "b", "Answer": "v"}], "ab", "xvy",
         [[2], [-1]]),
        ([{"query": "a", "candidate": "x"}, {"query": "b", "candidate": "v"}], "ab", "xv", None),
        ([{"sentence1": "a", "sentence2": text, "label": k % 2} for k, text in enumerate("wxyz")], "a", "xzwy",
         [[2, 3]]),
        ([{"anchor": "a", "positive": "x"}, {"anchor": "a", "positive": "y", "negative": ["x", "z"]}], "a", "xyz",
         [[2]]),
    ],
)  # fmt: skip
def test_published_layouts_of_pairs(rows, queries, candidates, negatives, tmp_path):
    training = load(table(tmp_path / "a.jsonl", rows))
    assert "".join(training.query.items) == queries and "".join(training.candidate.items) == candidates
    assert (None if training.negatives is None else training.negatives.tolist()) == negatives


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        ([("a", "x", ""), ("a", "y", ""), ("b", "y", ""), ("c", "z", ""), ("z", "w", "")], [0, 0, 0, 1, 1]),
        ([("a", "x", "1"), ("b", "y", "1"), ("c", "z", "2")], [0, 0, 1]),
        ([("a", "x", "1"), ("b", "y", "2"), ("b", "z", "1")], [0, 0, 0]),
    ],
)
def test_equal_texts_and_groups_match(rows, groups, tmp_path):
    table(tmp_path / "a.jsonl", [dict(zip(("anchor", "positive", "group"), row, strict=True)) for row in rows])
    training = load(tmp_path / "a.jsonl")
    by_text = dict(zip(training.query.items, training.query.group.tolist(), strict=True))
    candidate = dict(zip(training.candidate.items, training.candidate.group.tolist(), strict=True))
    assert numbered([by_text[query] for query, *_ in rows])[0] == groups
    assert all(by_text[query] == candidate[positive] for query, positive, _ in rows)


def test_lists_of_texts_are_groups(tmp_path):
    training = load(table(tmp_path / "a.jsonl", [{"set": ["a", "b"]}, {"set": ["c", "d", "a"]}]))
    assert training.query.items == tuple("abcda") and training.query.group.tolist() == [0, 0, 1, 1, 1]


def test_named_columns_are_read(tmp_path):
    rows = [{"id": 1, "title": "a", "body": "x", "wrong": "y", "bad": "z"}, {"id": 2, "title": "b", "body": "v"}]
    path = table(tmp_path / "a.jsonl", rows)
    rows = load(path, columns="query=title,positive=body,negative=wrong,bad")
    assert rows.negatives.tolist() == [[2, 3], [-1, -1]]
    assert any("id" in note for note in rows.notes)  # an unused column is reported
    assert load(path, columns="text=title,label=id").query.group.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (None, ("id", "query", "positive", "text", "label")),
        ("query=titel,positive=body", ("titel", "title")),
        ("query=title,postive=body", ("postive", "positive")),
        ("query=title,body,positive=body", ("title, body",)),
        ("title", ("column",)),
    ],
)
def test_wrong_columns_are_reported_with_right_ones(columns, wanted, tmp_path):
    path = table(tmp_path / "a.jsonl", [{"id": 1, "title": "a", "body": "x"}, {"id": 2, "title": "b", "body": "v"}])
    with pytest.raises(InputError) as error:
        data.find(path, {"columns": columns} if columns else None).load()
    assert all(word in str(error.value) for word in wanted)


def test_splits_of_a_column_and_of_a_folder(tmp_path):
    rows = [row | {"split": name} for row, name in zip(layouts.PAIRS, ("train", "train", "test"), strict=True)]
    sources = [data.find(table(tmp_path / "a.jsonl", rows))]
    for number, name in enumerate(("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test.csv")):
        table(tmp_path / "folder" / name, layouts.PAIRS[number : number + 1])
    lines(tmp_path / "folder" / "README.md", "mine")
    sources.append(data.find(tmp_path / "folder"))
    for source in sources:
        assert set(source.splits) == {"train", "test"}
        assert source.load("train").query.items == ("a cat", "a dog")
        assert source.load("test").query.items == ("a bird",)
        with pytest.raises(InputError, match="'test'"):
            source.load("tset")


# BEIR


def test_beir_corpus_is_ranked_by_evaluate_only(tmp_path):
    folder = layouts.beir(tmp_path)
    rows = data.load("beir", "test", folder)
    assert rows.candidate.items == ("Cats They purr.", "Dogs bark.", "Cows They moo.")
    assert rows.negatives.tolist() == [[1], [-1], [-1]] and rows.corpus.items == ("Rain.",)
    vectors = {"Cats They purr.": 0, "Dogs bark.": 1, "Cows They moo.": 2, "Rain.": 3, "which animal purrs": 0,
               "which one barks": 3, "which moos": 2}  # fmt: skip
    model = cocos.open(folder, model=lambda texts: torch.eye(4)[[vectors[text] for text in texts]])
    assert len(model.embed("test", "cpu").candidate) == 3
    dataset = cocos.measures.evaluate(model, split="test", ks=[1], device="cpu")
    recall = dataset["R@1"].sel(direction="q2c").item()
    assert recall == pytest.approx(200 / 3)  # the second query finds a document without judgement
    assert dataset["candidates"].sel(direction="q2c").item() == 4


def test_beir_query_with_id_of_document_is_noted(tmp_path):
    folder = layouts.beir(tmp_path)
    assert not any("id of a document" in note for note in data.load("beir", "test", folder).notes)
    table(folder / "queries.jsonl", [{"_id": "d1", "text": "Cats They purr."}, {"_id": "q2", "text": "barks"}])
    lines(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore", "d1\td2\t1", "q2\td3\t1")
    rows = data.load("beir", "test", folder)
    assert any("1 of 2 queries" in note for note in rows.notes)
    assert rows.query.group[0] == rows.candidate.group[0] != rows.corpus.group[0]  # its own document is no match


def test_beir_judgements_of_unknown_ids_are_skipped(tmp_path):
    judged = (("q1", "d1", 1), ("q2", "d2", 1), ("q1", "d9", 1), ("q8", "d1", 1))
    rows = data.load("beir", "test", layouts.beir(tmp_path, judged))
    assert len(rows.query.items) == 2 and any("2 judgements of unknown ids" in note for note in rows.notes)


# Images


def test_images_are_the_pixels_of_their_files(tmp_path):
    folder = layouts.class_folders(tmp_path)
    side = data.find(folder).load().query
    assert side.names == ("cats/a.png", "cats/more/b.png", "dogs/c.png", "dogs/d.png")
    for row, name in enumerate(side.names):
        pixels = np.asarray(Image.open(folder / name).convert("RGB"))
        assert np.array_equal(side.items[row].permute(1, 2, 0), pixels)


@pytest.mark.parametrize("content", [b"mine", None, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"])
def test_unreadable_image_is_named(content, tmp_path):
    rows = data.find(layouts.class_folders(tmp_path)).load()
    (tmp_path / "cats/a.png").unlink()
    if content is not None:
        (tmp_path / "cats/a.png").write_bytes(content)
    with pytest.raises(InputError, match="cats/a.png"):
        _ = rows.query.items[0]


def test_identity_follows_the_bytes_of_an_image(tmp_path):
    before = data.find(layouts.class_folders(tmp_path)).load().identity
    picture(tmp_path / "cats/a.png", size=(7, 4))
    assert data.find(tmp_path).load().identity != before


@pytest.mark.parametrize("name", IMAGE_LISTS)
def test_image_lists_have_the_splits_of_papers(name, tmp_path):
    source = data.find(LAYOUTS[name][0](tmp_path))
    if name == "landmarks":
        return
    train, test = source.load("train"), source.load("test")
    assert not set(train.query.names) & set(test.query.names)
    groups = {int(group) for side in (*train.sides, *test.sides) for group in side.group}
    assert groups == {0, 1, 2, 3}  # numbered over both splits
    if name.startswith("clothes"):
        assert test.query.group.tolist() == [1, 3] and test.candidate.group.tolist() == [1, 1, 3]
    else:
        assert sorted(test.query.group.tolist()) == [2, 2, 3, 3] and test.candidate is None


def test_landmarks_list_images_of_each_landmark(tmp_path):
    layouts.landmarks(tmp_path)
    rows = "landmark_id,images", "5,0a1b2c3d4e5f6a7c", "70,f0e1d2c3b4a59687 f0e1d2c3b4a59688"
    lines(tmp_path / "train.csv", *rows)
    assert data.find(tmp_path).load().query.group.tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", ["birds", "karpathy", "caption table"])
def test_images_elsewhere_need_their_folder(name, tmp_path):
    path = LAYOUTS[name][0](tmp_path / "set")
    folder = tmp_path / "set" / "images"
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="--images FOLDER"):
        data.find(path).load()
    assert len(data.find(path, {"images": str(tmp_path / "elsewhere")}).load().query)


def test_splits_of_a_caption_table(tmp_path):
    for name in ("a.jpg", "b.jpg"):
        picture(tmp_path / name)
    lines(tmp_path / "s.csv", "image,caption,split", "a.jpg,a dog,train", "b.jpg,a cat,test")
    source = data.find(tmp_path / "s.csv")
    texts = [source.load(split).candidate.items for split in source.splits]
    assert source.splits == ("train", "test") and texts == [("a dog",), ("a cat",)]


def test_named_text_columns_beat_captions(tmp_path):
    path = lines(tmp_path / "s.csv", "image,caption,kind", "a.jpg,a dog,1", "b.jpg,a cat,1", "c.jpg,a mat,2")
    assert data.find(path, {"columns": "text=caption,label=kind"}).load().query.group.tolist() == [0, 0, 1]
    assert data.find(lines(tmp_path / "t.csv", "image,caption,query,positive", "a,b,c,d")).kind == "pairs"


def test_precomputed_images_stored_five_times_are_one(tmp_path):
    rows = data.find(layouts.precomputed(tmp_path / "five", stored=5)).load()
    single = data.find(layouts.precomputed(tmp_path / "one")).load()
    assert np.array_equal(rows.query.items, single.query.items) and isinstance(rows.query.items, np.memmap)
    assert rows.candidate.group.tolist() == single.candidate.group.tolist()
    one_each = data.find(layouts.precomputed(tmp_path / "each", per_image=1, images=5)).load()
    assert one_each.candidate.group.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", ["C", "F"])
def test_precomputed_features_of_another_byte_order(order, tmp_path):
    features = np.load(layouts.precomputed(tmp_path) / "train_ims.npy")
    np.save(tmp_path / "train_ims.npy", np.asarray(features.astype(">f8"), order=order))
    items = data.find(tmp_path).load().query.items
    assert items.dtype.isnative and np.array_equal(items, features)


# Data of the user


@pytest.mark.parametrize(
    "rows",
    [
        3, {}, {"query": ["a"]}, {"items": ["a"]}, {"items": ["a", "b"], "labels": [1]},
        {"query": ["a"], "candidat": ["b"]}, {"query": "ab", "candidate": ["a", "b"]},
        {"query": ["a"], "candidate": ["b", "c"]}, {"query": ["a"], "candidate": ["b"], "query_kind": "texts"},
        {"query": ["a"], "candidate": ["b"], "negatives": [[3]]}, {"query": ["a", 3], "candidate": ["b", "c"]},
        {"query": ["a"], "candidate": ["b"], "directions": "ab"}, {"items": np.array([{}, 1]), "labels": [0, 1]},
        {"items": ["a"], "labels": [0], "proxies": [None]}, {"query": ["a"], "candidate": ["b"], "query_kind": 3},
    ],
)  # fmt: skip
def test_wrong_rows_of_the_user_are_refused(rows):
    with pytest.raises(InputError) as error:
        data.from_user(lambda split: rows).load("train")
    assert "data " in str(error.value)


def test_user_function_is_called_with_the_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "mine.py", "def load(split):", "    return {'items': [split, 'b'], 'labels': [0, 0]}")
    assert data.from_user("mine.py:load").load("dev").query.items == ("dev", "b")


def test_kind_follows_from_the_type_of_rows():
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    rows = data.training_set({"query": images, "candidate": ["a", "b"], "query_name": ["c", "d"]}, "mine")
    assert [side.kind for side in rows.sides] == ["image", "text"] and rows.pictures("q2c")[0](1).shape == (4, 4, 3)
    assert rows.texts("c2q")[1](1) == "d"
    assert data.training_set({"items": np.zeros((2, 3)), "labels": [0, 1]}, "mine").query.kind == "features"


def test_identity_depends_on_every_part():
    base = {"query": ["a", "bc"], "candidate": ["d", "e"], "query_group": [0, 1], "candidate_group": [0, 1]}
    changes = ({}, {"query": ["ab", "c"]}, {"candidate_group": [1, 0]}, {"negatives": [[1], [0]]})
    identities = [data.training_set(base | change, "mine").identity for change in changes]
    assert len(set(identities)) == len(identities)
    assert identities[0] == data.training_set(base, "yours", "dev").identity


def test_rows_without_text_are_described_by_their_match():
    captions, features = ["a", "b"], np.ones((2, 3), dtype="float32")
    rows = data.training_set({"query": features, "candidate": captions}, "mine")
    assert rows.names() == (("features of: a", "features of: b"), ("a", "b"))
    assert data.training_set({"query": features, "candidate": features}, "mine").names() == (None, None)
    assert data.training_set({"query": ["a\0b"], "candidate": ["c"]}, "mine").names()[0] == ("a b",)


# Damage: the message is one line that names the file, and a position if there is one.


def replace_bytes(before, after):
    return lambda path: path.write_bytes(path.read_bytes().replace(before, after))


def content(text):
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode("latin1"))


def change_json(**change):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | change))


def pickled(**parts):
    return lambda path: path.write_bytes(pickle.dumps({"images": {}, "captions": {}} | parts, 3))


COCO = "annotations/captions_train2017.json"
DAMAGES = [
    ("pairs jsonl", "", content('{"query": "a", "positive": "x"}\n{"query": "b", "posi\n'), "line 2"),
    ("pairs jsonl", "", content('{"query": "a", "positive": "x"}\n\n3\n'), "line 3"),
    ("pairs jsonl", "", content('{"query": "a", "positive": "x"}\n{"query": "b"}\n'), "line 2: positive"),
    ("pairs jsonl", "", content('{"query": "a", "positive": 3}\n{}\n'), "line 1: positive"),
    ("pairs jsonl", "", content('{"query": " ", "positive": "x"}\n{}\n'), "line 1: query"),
    ("pairs jsonl", "", content('{"query": "a", "positive": "x", "neg": {"b": 1}}\n{}\n'), "line 1: neg"),
    ("pairs jsonl", "", content('{"text": "a", "label": 1}\n{"text": "b", "label": NaN}\n'), "line 2: label"),
    ("pairs jsonl", "", content('{"text": "a", "label": 1.5}\n{}\n'), "line 1: label"),
    ("pairs jsonl", "", content('{"text": "a"}\n{}\n'), "line 1 has no label"),
    ("pairs jsonl", "", content('{"query": "a", "positive": "x"}\n{"query": "\xff", "positive": "x"}\n'), "line 2"),
    ("pairs csv", "", content("text,label\na,1\nb,\n"), "line 3: label"),
    ("pairs csv", "", content("text,label\na,1,2\n"), "line 2: 3 fields, expected 2"),
    ("pairs csv", "", content('text,label\na,1\n"b,2\n' + "c,3\n" * 40_000), "quotation mark"),
    ("pairs csv", "", content("text,label\n"), "no row"),
    ("pairs csv", "", content("query,positive,match\na,x,0\n"), "no row has a positive"),
    ("pairs csv", "", content("query,positive,match\na,x,0.4\nb,y,1\n"), "line 2: match"),
    ("pairs csv", "", content(""), "unknown format"),
    ("pairs jsonl.gz", "", content(b"\x1f\x8b" + b"\0" * 40), "unknown format"),
    ("pairs parquet", "", content(b"PAR1" + b"\0" * 40), "damaged"),
    ("saved dataset", "train/state.json", content("{"), "cannot be read"),
    ("saved dataset", "dataset_dict.json", content('{"splits": ["gone"]}'), "cannot be read"),
    ("beir", "qrels/test.tsv", replace_bytes(b"\t2\n", b"\tgood\n"), "test.tsv"),
    ("beir", "qrels/test.tsv", content("query-id\tcorpus-id\tscore\nq8\td9\t1\n"), "no judgement"),
    ("beir", "qrels/test.tsv", content("query-id\tcorpus-id\tscore\nq1\td1\t0\n"), "no row has a positive"),
    ("beir", "corpus.jsonl", content('{"id": "d1", "text": "They purr."}\n{}\n'), "_id"),
    ("caption table", "", content("image,caption\n../a.jpg,one\nb.jpg,two\n"), "inside"),
    ("caption table", "", content("image,caption\n/etc/a.jpg,one\n"), "inside"),
    ("caption table", "", content("image,caption\na.jpg,one, two\n"), "line 2: 3 fields, expected 2"),
    ("caption table", "", content("image,caption\na.jpg,\n"), "line 2"),
    ("caption table", "", content("image,caption\n,one\n"), "line 2"),
    ("caption table", "", content("image,caption\n"), "captions.txt"),
    ("caption table", "", content("image,caption\nhttp://example.org/a,one\n"), "example.org/a"),
    ("coco", COCO, change_json(images=[3]), COCO),
    ("coco", COCO, change_json(images=[{"id": [1], "file_name": "a"}]), COCO),
    ("coco", COCO, change_json(annotations=[{"image_id": 99, "caption": "a"}]), COCO),
    ("coco", COCO, change_json(annotations=[{"image_id": 10, "caption": 3}]), COCO),
    ("coco", COCO, change_json(images=[{"id": 10, "file_name": "../train2017/0.jpg"}], annotations=[
        {"image_id": 10, "caption": "a"}]), "inside"),
    ("karpathy", "dataset_flickr30k.json", replace_bytes(b'"filename"', b'"name"'), "'filename'"),
    ("karpathy", "dataset_flickr30k.json", replace_bytes(b'"raw": "', b'"raw": 3, "x": "'), "dataset_flickr30k.json"),
    ("flickr tokens", "", content("a.jpg#0\tone\nnothing\n"), "line 2: 'nothing'"),
    ("flickr tokens", "", content("a.jpg#0\tone\nb.jpg#0\t\xff\n"), "line 2: not UTF-8"),
    ("bleeker", "train_set.p", pickled(images={1: {"image": "text"}}), "train_set.p"),
    ("bleeker", "train_set.p", pickled(images={1: {"image": b"x"}}), "1 images and no captions"),
    ("bleeker", "train_set.p", pickled(images={1: {"image": b"x"}}, captions={5: {"caption": "a", "imgid": 2}}),
     "train_set.p"),
    ("bleeker", "train_set.p", pickled(images={1: {"image": b"x"}}, captions={5: {"caption": 3, "imgid": 1}}),
     "train_set.p"),
    ("precomputed", "train_ims.npy", content("mine"), "train_ims.npy"),
    ("precomputed", "train_ims.npy", lambda path: np.save(path, np.array([{}]), allow_pickle=True), "train_ims.npy"),
    ("precomputed", "train_ims.npy", lambda path: np.save(path, np.ones((2, 3), int)), "int64 (2, 3)"),
    ("precomputed", "train_ims.npy", lambda path: np.save(path, np.ones((3, 3))), "10 lines"),
    ("precomputed", "train_caps.txt", content("a\n\xff\n"), "line 2"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[:2].astype("f4"), labels=[1, 1]), "images: float32"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[0, 0], labels=[1, 1]), "images: uint8"),
    ("images npz", "", lambda path: np.savez(path, features=ROWS, labels=[1, 1]), "features: uint8"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[:2], labels=[1.0, np.nan]), "dtype torch.float64"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[:2], labels=[1]), "shape (1,)"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[:2], captions=[1, 2]), "captions: int64"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[:2], captions=["a", "b", "c"]), "captions:"),
    ("images npz", "", lambda path: np.savez(path, images=ROWS[:2], labels=np.array([{}, {}])), "damaged"),
    ("birds", "images.txt", replace_bytes(b"1 001.Alb", b"1 ../../001.Alb"), "inside"),
    ("birds", "images.txt", replace_bytes(b"1 001", b"1 one 001"), "line 1: 3 fields, expected 2"),
    ("birds", "images.txt", replace_bytes(b"Albatross", b"\xffAlb"), "line 1: not UTF-8"),
    ("birds", "images.txt", lambda path: path.unlink(), "images.txt"),
    ("birds", "images.txt", replace_bytes(b"Albatross_1", b"Albatross_7"), "1 of 4 images"),
    ("birds", "image_class_labels.txt", replace_bytes(b"8 200\n", b""), "image_class_labels.txt"),
    ("birds", "image_class_labels.txt", replace_bytes(b"8 200", b"8 two"), "'two'"),
    ("cars", "cars_annos.mat", content("cars"), "cars_annos.mat"),
    ("cars", "cars_annos.mat", lambda path: path.write_bytes(path.read_bytes()[:300]), "cars_annos.mat"),
    ("cars", "cars_annos.mat", content(b"MATLAB 7.3 MAT-file" + b" " * 105 + b"\x00\x02IM"), "cars_annos.mat"),
    ("cars devkit", "cars_test_annos_withlabels.mat", lambda path: path.unlink(), "cars_test_annos_withlabels.mat"),
    ("products", "Ebay_test.txt", lambda path: path.unlink(), "Ebay_test.txt"),
    ("products", "Ebay_train.txt", replace_bytes(b"super_class_id ", b""), "line 1"),
    ("products", "Ebay_train.txt", replace_bytes(b"1 1 1", b"1 1.5 1"), "'1.5'"),
    ("clothes", "Eval/list_eval_partition.txt", replace_bytes(b"     train", b"     trian"), "'trian'"),
    ("clothes", "Eval/list_eval_partition.txt", replace_bytes(b"item_id e", b"item_id x e"), "line 2"),
    ("landmarks", "train.csv", replace_bytes(b",70", b",x"), "'x'"),
    ("landmarks", "train.csv", replace_bytes(b"f0e1d2c3b4a59687,", b"../../etc,"), "inside"),
    ("landmarks", "train.csv", replace_bytes(b",70\n", b"\n"), "line 4: 2 fields, expected 3"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file", "damage", "wanted"), DAMAGES)
def test_damaged_layout_is_one_message(name, file, damage, wanted, tmp_path):
    path = LAYOUTS[name][0](tmp_path / "set")
    damage(path / file if file else path)
    with pytest.raises(InputError) as error:
        source = data.find(path)
        source.load(source.splits[0])
    message = str(error.value)
    assert wanted in message and "\n" not in message and not isinstance(error.value, UnsafeFile)
    done = CliRunner().invoke(app, ["encode", str(path), "--model", "a.py:b", "--out", str(tmp_path / "e.npz")])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and not (tmp_path / "e.npz").exists()


class Harmful:
    def __reduce__(self):
        return print, ("run",)


def test_pickle_with_another_class_is_unsafe(tmp_path, capsys):
    path = layouts.bleeker(tmp_path) / "train_set.p"
    path.write_bytes(pickle.dumps({"images": {}, "captions": {}, "more": Harmful()}, 3))
    done = CliRunner().invoke(app, ["encode", str(path), "--model", "a.py:b", "--out", str(tmp_path / "e.npz")])
    assert done.exit_code == 3 and "builtins.print" in done.stderr
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["a.bin", "b.bin"])
def test_unknown_file_lists_the_formats(name, tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match=name) as error:
        data.find(tmp_path / name)
    if name == "a.bin":
        assert all(kind in str(error.value) for kind in data.NAMES)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"cocos-metric\[data\]"):
        data.find(tmp_path / "a.parquet").load()


@pytest.mark.parametrize("noise", [0, 1e-7])
def test_embedded_images_stored_five_times_are_one(noise, tmp_path):
    """Expected values by the published rule, which takes every fifth image (`i2t` and `t2i` of VSE++)."""
    generator = np.random.default_rng(5)
    images = generator.normal(size=(50, 12))
    captions = np.repeat(images, 5, 0) + 1.6 * generator.normal(size=(250, 12))
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, captions)]
    scores, match = unit[0] @ unit[1].T, np.arange(50)[:, None] == np.arange(250) // 5
    ranks = {
        "i2t": (scores > np.where(match, scores, -9).max(axis=1, keepdims=True)).sum(axis=1),
        "t2i": (scores > scores[np.arange(250) // 5, np.arange(250)]).sum(axis=0),
    }
    copies = np.repeat(images, 5, 0) * (1 + noise * generator.normal(size=(250, 1)))
    np.savez(tmp_path / "a.npz", img_embs=copies.astype("f4"), cap_embs=captions.astype("f4"))
    dataset = cocos.measures.evaluate(cocos.open(tmp_path / "a.npz"), ks=[1, 5, 10])
    for direction, rank in ranks.items():
        for k in (1, 5, 10):
            assert dataset[f"R@{k}"].sel(direction=direction).item() == pytest.approx(100 * (rank < k).mean())
