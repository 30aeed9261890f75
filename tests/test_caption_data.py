"""Images and captions as people have them: tables, Karpathy's folder, pickles; and the vocabulary beside them."""

import argparse
import io
import json
import pickle
from collections import defaultdict

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import cocos
import test_vsepp
from cocos import data
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import inspect
from cocos.checkpoints.formats import _trunks
from cocos.cli import app
from test_image_lists import lines, picture
from test_vision import RESNET, filled

TEXTS = {"a.jpg": ["a dog, running", "the dog"], "b.jpg": ["one cat"], "c/d.png": ['a "quoted" mat']}


@pytest.fixture
def table(tmp_path):
    for name in TEXTS:
        picture(tmp_path / "images" / name)
    return tmp_path


def written(path, header, sign, turned=False, quote='"'):
    rows = [(name, text) for name, texts in TEXTS.items() for text in texts]
    rows = [each[::-1] if turned else each for each in rows]
    quoted = [[f'"{cell.replace(chr(34), 2 * chr(34))}"' if quote else cell for cell in row] for row in rows]
    return lines(path, *([sign.join(header)] if header else []), *(sign.join(row) for row in quoted))


@pytest.mark.parametrize(
    ("name", "header", "sign", "turned"),
    [
        ("captions.txt", ("image", "caption"), ",", False),
        ("captions.tsv", ("Caption", "Image"), "\t", True),
        ("clip.tsv", ("filepath", "title"), "\t", False),
    ],
)
def test_a_table_with_a_header(name, header, sign, turned, table):
    source = data.find(written(table / name, header, sign, turned))
    found = source.load()
    assert (source.kind, source.splits) == ("caption_tables", ("train",)) and found.directions == ("i2t", "t2i")
    assert found.candidate.items == ("a dog, running", "the dog", "one cat", 'a "quoted" mat')
    assert found.candidate.group.tolist() == [0, 0, 1, 2] and len(found.query) == 3


def test_the_folder_of_a_table(table):
    written(table / "captions.txt", ("image", "caption"), ",")
    (table / "images").rename(table / "Images")
    source = data.find(table)
    assert source.kind == "caption_tables" and len(source.load().query) == 3


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_table_that_begins_as_a_pickle_is_a_table(mark, tmp_path):
    """The c of `caption` imports the names of two lines, in a pickle."""
    picture(tmp_path / "a.jpg")
    path = lines(tmp_path / "table.csv", f"caption{mark}image", f"one dog{mark}a.jpg", f"a cat{mark}a.jpg")
    assert inspect(path)["format"] == "caption_tables"
    assert data.find(path).load().candidate.items == ("one dog", "a cat")


def test_the_first_row_of_a_table_without_a_header_is_a_row(table):
    """As Conceptual Captions: a caption, a tab, and the image; quotation marks are characters."""
    path = written(table / "Train_GCC-training.tsv", None, "\t", turned=True, quote="")
    found = data.find(path).load()
    assert found.candidate.items == ("a dog, running", "the dog", "one cat", 'a "quoted" mat')
    assert inspect(path)["contents"] == {"train": "3 images, 4 captions"}


def test_addresses_are_not_downloaded(tmp_path):
    path = lines(tmp_path / "gcc.tsv", "a dog\thttp://example.org/a", "a cat\thttp://example.org/b")
    with pytest.raises(InputError, match="line 1: http://example.org/a is an address, and cocos downloads nothing"):
        data.find(path).load()


def test_splits_of_a_table_and_images_elsewhere(table):
    lines(table / "s.csv", "image,caption,split", "a.jpg,a dog,train", "b.jpg,a cat,test")
    (table / "images").rename(table / "elsewhere")
    about = inspect(table / "s.csv")
    assert about["splits"] == ["train", "test", "all"] and " --images FOLDER " in about["next"]
    found = data.find(table / "s.csv", {"images": str(table / "elsewhere")})
    assert [found.load(split).candidate.items for split in found.splits] == [
        ("a dog",), ("a cat",), ("a dog", "a cat")
    ]  # fmt: skip


def test_who_names_columns_of_texts_gets_texts(table):
    path = lines(table / "s.csv", "image,caption,kind", "a.jpg,a dog,1", "b.jpg,a cat,1", "c.jpg,a mat,2")
    found = data.find(path, {"columns": "text=caption,label=kind"})
    assert found.kind == "pairs" and found.load().query.items == ("a dog", "a cat", "a mat")
    assert data.find(lines(table / "t.csv", "image,caption,query,positive", "a,b,c,d")).kind == "pairs"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["image,caption", "../a.jpg,one", "b.jpg,two"], r"'\.\./a.jpg', expected the name of an image inside"),
        (["image,caption", "/etc/a.jpg,one"], "expected the name of an image inside"),
        (["image,caption", "a.jpg,one, two"], "line 2: 3 fields, expected 2"),
        (["image,caption", "a.jpg,"], "line 2: an empty caption"),
        (["image,caption", ",one"], "line 2: an empty image"),
        (["image,caption"], "no image with a caption"),
        (["image,caption", "a.jpg,\udcff"], "line 2: not UTF-8"),
        (["one\ta.jpg", "two\tb.jpg\tthree"], "line 2: 3 fields, expected 2"),
    ],
)
def test_a_table_that_is_wrong_is_named(rows, said, table):
    (table / "w.csv").write_bytes("\n".join(rows).encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=said):
        data.find(table / "w.csv").load()


WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", "cat", "mat", "the", "one", "two"]


def jpeg(seed):
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def pickled(path, numbers=range(4), protocol=3):
    """The pickle of a split, as the notebook of the study writes it: a defaultdict of two dictionaries."""
    made = defaultdict(dict)
    for image in numbers:
        ids = [2 * image, 2 * image + 1]
        about = {"filename": f"{image}.jpg", "cocoid": 100 + image}
        made["images"][image] = {"image": jpeg(image), "caption_ids": ids, **about}
        for caption in ids:
            text = f"{'a the'.split()[caption % 2]} {'dog cat mat one'.split()[image % 4]}"
            made["captions"][caption] = {"caption": text, "imgid": image, "tokens": text.split(), **about}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(made, protocol))
    return path


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_the_pickles_of_the_study(protocol, tmp_path):
    for split in ("train", "val", "test"):
        pickled(tmp_path / "f30k" / f"{split}_set.p", protocol=protocol)
    source = data.find(tmp_path / "f30k")
    assert (source.kind, source.splits) == ("pickled_captions", ("train", "test", "val"))
    found = source.load("test")
    assert found.candidate.items[:3] == ("a dog", "the dog", "a cat")
    assert found.candidate.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    expected = np.asarray(Image.open(io.BytesIO(jpeg(2))).convert("RGB"))
    assert torch.equal(found.query.items[2], torch.from_numpy(expected.copy()).permute(2, 0, 1))
    assert found.identity == source.load("val").identity
    one = data.find(tmp_path / "f30k" / "val_set.p")
    assert one.splits == ("val",) and one.load("val").identity == found.identity
    assert inspect(tmp_path / "f30k" / "val_set.p")["next"].startswith("cocos encode ")


class Harmful:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ({"images": {}, "captions": {}, "more": Harmful()}, UnsafeFile, "builtins.print. Nothing was imported or run"),
        ({"images": [1], "captions": {}}, InputError, "images is list, expected a dictionary"),
        ({"images": {1: {"image": "text"}}, "captions": {}}, InputError, "image 1: image is str, expected bytes"),
        ({"images": {1: {"image": b"x"}}, "captions": {}}, InputError, "1 images and no captions"),
        (
            {"images": {1: {"image": b"x"}}, "captions": {5: {"caption": "a", "imgid": 2}}},
            InputError,
            "caption 5: imgid 2, expected the id",
        ),
        (
            {"images": {1: {"image": b"x"}}, "captions": {5: {"caption": 3, "imgid": 1}}},
            InputError,
            "caption 5: caption is int",
        ),
        ({"images": {2**70: {"image": b"x"}}}, InputError, "a number of 71 bits"),
        ({"images": {(k, (k,)): 1 for k in range(200)}}, InputError, "tuples"),
    ],
)
def test_a_pickle_of_anything_else_is_refused(content, error, said, tmp_path, capsys):
    path = tmp_path / "train_set.p"
    path.write_bytes(pickle.dumps(content, 3))
    with pytest.raises(error, match=said):
        data.find(path, {"kind": "pickled_captions"}).load()
    assert "run" not in capsys.readouterr().out


def karpathy(folder):
    """The folder of VSE++: `dataset_flickr30k.json` and `images`."""
    entries = []
    for k, split in enumerate(("train", "train", "train", "val", "test")):
        picture(folder / "images" / f"{k}.jpg")
        sentences = [{"raw": f"{word} {'dog cat mat one two'.split()[k]}"} for word in ("a", "the")]
        entries.append({"filename": f"{k}.jpg", "split": split, "sentences": sentences})
    (folder / "dataset_flickr30k.json").write_text(json.dumps({"images": entries, "dataset": "flickr30k"}))
    return folder


def test_the_folder_of_karpathys_file(tmp_path):
    source = data.find(karpathy(tmp_path))
    assert (source.kind, source.splits) == ("karpathy_captions", ("train", "val", "test"))
    assert len(source.load("train").query) == 3
    (tmp_path / "dataset_coco.json").write_text("{}")
    with pytest.raises(InputError, match="no known kind"):
        data.find(tmp_path)


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of VSE++ on raw images, which does not hold its vocabulary; its data are elsewhere."""
    network = _trunks.network("resnet", RESNET)
    image = {f"cnn.module.{name}": each for name, each in filled(network).items()}
    image |= {"fc.weight": torch.randn(6, network.width), "fc.bias": torch.randn(6)}
    text = {f"rnn.{name}": each for name, each in filled(torch.nn.GRU(4, 6)).items()}
    text |= {"embed.weight": torch.randn(len(WORDS), 4)}
    opt = argparse.Namespace(data_name="f30k", cnn_type="resnet", margin=0.2, max_violation=True, measure="cosine")
    path = tmp_path / "vsepp_out" / "model_best.pth.tar"
    path.parent.mkdir()
    torch.save({"epoch": 1, "model": [image, text], "opt": opt, "Eiters": 2}, path)
    return path


def vocabulary(folder):
    folder.mkdir(exist_ok=True)
    (folder / "f30k_vocab.json").write_text(json.dumps({word: k for k, word in enumerate(WORDS)}))


@pytest.mark.parametrize(
    ("kind", "place"), [("karpathy", "f30k"), ("file", "f30k/vocab"), ("pickles", "vocab"), ("karpathy", ".")]
)
def test_encode_finds_the_vocabulary_beside_the_data(kind, place, checkpoint, tmp_path):
    folder = tmp_path / "f30k"
    typed = str(folder)
    if kind == "pickles":
        pickled(folder / "train_set.p")
    else:
        typed += "/dataset_flickr30k.json" if kind == "file" else ""
        folder.mkdir()
        karpathy(folder)
    words = ["encode", typed, "--model", str(checkpoint), "--out", str(tmp_path / "e.npz")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "does not hold its vocabulary" in done.stderr
    vocabulary(tmp_path / place)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    found = cocos.open(tmp_path / "e.npz").embed(device="cpu")
    counted = cocos.open(checkpoint, data=typed).embed(device="cpu")
    assert torch.equal(found.query, counted.query) and torch.equal(found.candidate, counted.candidate)


@pytest.mark.parametrize("family", ["vsepp", "vsrn"])
def test_encode_finds_the_vocabulary_beside_precomputed_features(family, tmp_path):
    shape = (test_vsepp.FEATURES,) if family == "vsepp" else (test_vsepp.REGIONS, test_vsepp.FEATURES)
    folder = test_vsepp.write_folder(tmp_path / "f30k_precomp", shape=shape)
    state = test_vsepp.vsepp_state() if family == "vsepp" else test_vsepp.vsrn_state(True)
    (tmp_path / "out").mkdir()
    path = test_vsepp.save(tmp_path / "out" / "m.pth.tar", state, test_vsepp.text_state(), test_vsepp.options())
    (tmp_path / "vocab").mkdir()
    (folder / "f30k_precomp_vocab.pkl").rename(tmp_path / "vocab" / "f30k_precomp_vocab.pkl")
    words = ["encode", str(folder), "--model", str(path), "--out", str(tmp_path / "e.npz")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    found = cocos.open(tmp_path / "e.npz").embed(device="cpu")
    assert torch.equal(found.query, cocos.open(path, data=folder).embed(device="cpu").query)
    done = CliRunner().invoke(app, ["count", *words[1:4], "--batch-size", "all"])
    said = next(line for line in done.stdout.splitlines() if line.startswith("next: "))
    assert said.startswith(f"next: cocos audit {folder} ") and said.endswith(f" --model {path}")


def study(folder):
    pickled(folder / "train_set.p")
