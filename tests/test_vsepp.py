"""Checkpoints of VSE++ and VSRN: files of the published structure, opened, run, compared with slow loops."""

import argparse
import json
import math
import os
import pickle
import sys
import types
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints.formats import vocabulary

TRIPLETS = ("triplet", "triplet_sh")
FEATURES, WORD, WIDTH, REGIONS, IMAGES = 5, 4, 6, 3, 6
PUBLISHED = json.loads((Path(__file__).parent / "data" / "vsepp_keys.json").read_text())

# Captions and their tokens. Source: word_tokenize of nltk 3.10.4 on the lower-cased caption; its sentences
# were cut by Punkt with the abbreviations of its English model.
CAPTIONS = {
    "A man's dog doesn't run.": ["a", "man", "'s", "dog", "does", "n't", "run", "."],
    'Two dogs, near a sign that reads "stop."': "two dogs , near a sign that reads `` stop . ''".split(),
    "a dog": ["a", "dog"],
    "The man sits. The dog runs": ["the", "man", "sits", ".", "the", "dog", "runs"],
    "A black-and-white dog; the sign (red) is 3.5 ft. tall!": (
        "a black-and-white dog ; the sign ( red ) is 3.5 ft. tall !".split()
    ),
}
MORE_TOKENS = {
    "": [],
    "...": ["..."],
    "the dogs' bowl": ["the", "dogs", "'", "bowl"],
    "a public men's' room": ["a", "public", "men", "'s", "'", "room"],
    "he can't, they cannot, I'm gonna": "he ca n't , they can not , i 'm gon na".split(),
    'He said "hello." and left.': "he said `` hello . '' and left .".split(),
    "at 10:30 a.m. on St. Mark's: 1,000 sheep.": "at 10:30 a.m. on st. mark 's : 1,000 sheep .".split(),
    "room no. 5. a dog": ["room", "no", ".", "5.", "a", "dog"],
    "room no. 5. 6 dogs": ["room", "no", ".", "5", ".", "6", "dogs"],
    "a 'best' dog & cat -- 50% off at $5": "a ' best ' dog & cat -- 50 % off at $ 5".split(),
    "wait... what?!": ["wait", "...", "what", "?", "!"],
    "rock 'n' roll, y'all, o'clock": ["rock", "'n", "'", "roll", ",", "y'all", ",", "o'clock"],
    "(a dog.) a cat": ["(", "a", "dog", ".", ")", "a", "cat"],
    "it is 5 p.m.": ["it", "is", "5", "p.m", "."],
}
WORDS = [
    "<pad>",
    "<start>",
    "<end>",
    "<unk>",
    "a",
    "man",
    "'s",
    "dog",
    "does",
    "n't",
    "run",
    ".",
    "two",
    "dogs",
    ",",
]
WORDS += ["near", "sign", "that", "``", "''", "the", "sits", "runs", "black-and-white", "ft.", "!"]
VOCABULARY = {word: number for number, word in enumerate(WORDS)}


# The slow side: numpy in float64, one caption, region and step at a time.


def dot(matrix, vector, bias):
    return np.array([sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]) + bias


def unit(vector):
    return vector / math.sqrt(sum(x * x for x in vector))


def slow_gru(steps, state, prefix, layer=0):
    """Every output of one layer, by the equations of Cho et al. 2014 in the form that torch documents."""
    ih, hh, b, c = (state[f"{prefix}.{n}_l{layer}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    width, outputs = len(hh) // 3, []
    h = np.zeros(width)
    for x in steps:
        i, j = dot(ih, x, b), dot(hh, h, c)
        r = 1 / (1 + np.exp(-(i[:width] + j[:width])))
        z = 1 / (1 + np.exp(-(i[width : 2 * width] + j[width : 2 * width])))
        n = np.tanh(i[2 * width :] + r * j[2 * width :])
        h = (1 - z) * n + z * h
        outputs.append(h)
    return outputs


def slow_text(words, state, *, layers=1, use_abs=False):
    numbers = [VOCABULARY.get(word, 3) for word in ["<start>", *words, "<end>"]]
    steps = [state["embed.weight"][number] for number in numbers]
    for layer in range(layers):
        steps = slow_gru(steps, state, "rnn", layer)
    return abs(unit(steps[-1])) if use_abs else unit(steps[-1])


def slow_batch_norm(vector, state, name):
    spread = np.sqrt(state[f"{name}.running_var"] + 1e-5)
    return (vector - state[f"{name}.running_mean"]) / spread * state[f"{name}.weight"] + state[f"{name}.bias"]


def over_regions(regions):
    """Divide each feature by its length over the regions, as the code of VSRN does."""
    lengths = [math.sqrt(sum(region[d] ** 2 for region in regions)) for d in range(len(regions[0]))]
    return [region / np.array(lengths) for region in regions]


def slow_vsrn(regions, state, *, first_norm, last_norm):
    regions = [dot(state["fc.weight"], region, state["fc.bias"]) for region in regions]
    if first_norm:
        regions = over_regions(regions)
    for k in (1, 2, 3, 4):
        part = {
            n: [
                dot(state[f"Rs_GCN_{k}.{n}.weight"][:, :, 0], region, state[f"Rs_GCN_{k}.{n}.bias"])
                for region in regions
            ]
            for n in ("g", "theta", "phi")
        }
        changed = []
        for i, region in enumerate(regions):
            heard = sum((part["theta"][i] @ part["phi"][j]) / len(regions) * part["g"][j] for j in range(len(regions)))
            heard = dot(state[f"Rs_GCN_{k}.W.0.weight"][:, :, 0], heard, state[f"Rs_GCN_{k}.W.0.bias"])
            changed.append(region + slow_batch_norm(heard, state, f"Rs_GCN_{k}.W.1"))
        regions = changed
    image = slow_gru(over_regions(regions), state, "img_rnn")[-1]
    return unit(slow_batch_norm(image, state, "bn") if last_norm else image)


# Files of the published structure, in small.


def small(shapes, seed, size=0.7):
    """Random tensors; biases and running means are not zero, so that none of them can be forgotten."""
    rng = np.random.default_rng(seed)
    found = OrderedDict()
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            found[name] = torch.tensor(9)
        else:
            values = rng.normal(size=shape) * size
            found[name] = torch.tensor(abs(values) + 0.5 if name.endswith("running_var") else values).float()
    return found


def text_state(layers=1):
    shapes = {"embed.weight": (len(WORDS), WORD)}
    for layer in range(layers):
        shapes[f"rnn.weight_ih_l{layer}"] = (3 * WIDTH, WIDTH if layer else WORD)
        shapes[f"rnn.weight_hh_l{layer}"] = (3 * WIDTH, WIDTH)
        shapes |= {f"rnn.bias_{side}_l{layer}": (3 * WIDTH,) for side in ("ih", "hh")}
    return small(shapes, seed=1)


def vsepp_state():
    return small({"fc.weight": (WIDTH, FEATURES), "fc.bias": (WIDTH,)}, seed=2)


def vsrn_state(bn):
    sizes = {2048: WIDTH, 6144: 3 * WIDTH, 1: 1}
    shapes = {name: [sizes[n] for n in shape] for name, shape in PUBLISHED["vsrn"]["image"].items()}
    shapes["fc.weight"] = (WIDTH, FEATURES)
    return small({name: shape for name, shape in shapes.items() if bn or not name.startswith("bn.")}, seed=3, size=0.3)


def options(**changes):
    """The options of a training on precomputed features; None takes one away."""
    known = {
        "data_name": "f30k_precomp",
        "data_path": "gone",
        "vocab_path": "gone",
        "margin": 0.2,
        "num_layers": 1,
    }
    known |= {
        "max_violation": True,
        "measure": "cosine",
        "use_abs": False,
        "no_imgnorm": False,
        "cnn_type": "vgg19",
    }
    known |= {"criterion": "triplet", "tau": 0.1, "embed_size": WIDTH, "vocab_size": len(WORDS), "resume": ""}
    return {name: value for name, value in (known | changes).items() if value is not None}


def save(path, image, text, opt, *, legacy=False, **more):
    content = {
        "epoch": 7,
        "model": [image, text],
        "best_rsum": np.float64(401.5),
        "opt": argparse.Namespace(**opt),
    }
    torch.save(content | {"Eiters": 1234} | more, path, _use_new_zipfile_serialization=not legacy)
    return path


def pickled(vocabulary, module="__main__", protocol=2):
    """The bytes of a `Vocabulary`, as the training code's vocab.py writes it when run as a script."""
    cls = type("Vocabulary", (), {"__module__": module})
    found = cls()
    found.word2idx, found.idx2word = vocabulary, {number: word for word, number in vocabulary.items()}
    found.idx = len(vocabulary)
    with pytest.MonkeyPatch.context() as patch:
        for name in {module, module.split(".")[0]} - sys.modules.keys():
            patch.setitem(sys.modules, name, types.ModuleType(name))
        patch.setattr(sys.modules[module], "Vocabulary", cls, raising=False)
        return pickle.dumps(found, protocol)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "data" / "f30k_precomp")


def write_folder(path, *, shape=(FEATURES,), each=5, stored=1):
    path.mkdir(parents=True)
    images = np.random.default_rng(4).normal(size=(IMAGES, *shape)).astype("float32")
    lines = [list(CAPTIONS)[(image + n) % 5] for image in range(IMAGES) for n in range(each)]
    np.save(path / "train_ims.npy", images.repeat(stored, axis=0))
    (path / "train_caps.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (path / "f30k_precomp_vocab.pkl").write_bytes(pickled(VOCABULARY))
    return path


def in_float64(state):
    return {name: tensor.double().numpy() for name, tensor in state.items()}


def expect(embeddings, images, captions):
    """Compare with the slow side; float32 against float64."""
    np.testing.assert_allclose(embeddings.query.numpy(), images, rtol=0, atol=2e-6)
    np.testing.assert_allclose(embeddings.candidate.numpy(), captions, rtol=0, atol=2e-6)
    assert embeddings.query_group.tolist() == list(range(IMAGES))
    assert embeddings.candidate_group.tolist() == [image for image in range(IMAGES) for _ in range(5)]


def slow_captions(state, **how):
    each = {caption: slow_text(words, in_float64(state), **how) for caption, words in CAPTIONS.items()}
    return [each[list(CAPTIONS)[(image + n) % 5]] for image in range(IMAGES) for n in range(5)]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("how", [{}, {"use_abs": True}, {"no_imgnorm": True}, {"layers": 2}])
def test_vsepp_says_what_slow_loops_say(tmp_path, folder, legacy, how):
    layers, use_abs, raw_length = (
        how.get("layers", 1),
        how.get("use_abs", False),
        how.get("no_imgnorm", False),
    )
    image, text = vsepp_state(), text_state(layers)
    opt = options(use_abs=use_abs, no_imgnorm=raw_length, num_layers=layers)
    checkpoint = cocos.open(save(tmp_path / "model_best.pth.tar", image, text, opt, legacy=legacy), data=folder)
    assert checkpoint.format == "vsepp" and ("no_imgnorm" in checkpoint.contents["scores"]) == raw_length
    state = in_float64(image)
    slow = [dot(state["fc.weight"], row.astype(float), state["fc.bias"]) for row in np.load(folder / "train_ims.npy")]
    slow = [row if raw_length else unit(row) for row in slow]
    slow = [abs(row) if use_abs else row for row in slow]
    expect(checkpoint.embed(device="cpu"), slow, slow_captions(text, layers=layers, use_abs=use_abs))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("data_name", "bn", "first_norm"),
    [
        ("f30k_precomp", True, False),  # the code of 2019 after its first version, and of Bleeker & de Rijke
        ("coco_precomp", False, True),
        ("coco_precomp", True, True),  # another commit of Bleeker & de Rijke
        ("f30k_precomp", False, True),  # the first version of Li et al. knew no variant for Flickr30k
    ],
)
def test_vsrn_says_what_slow_loops_say(tmp_path, legacy, data_name, bn, first_norm):
    folder = write_folder(tmp_path / "data", shape=(REGIONS, FEATURES))
    (folder / "f30k_precomp_vocab.pkl").rename(folder / f"{data_name}_vocab.pkl")
    image, text = vsrn_state(bn), text_state()
    path = save(tmp_path / "checkpoint.pth.tar", image, text, options(data_name=data_name), legacy=legacy)
    checkpoint = cocos.open(path, data=folder)
    assert checkpoint.format == "vsrn"
    slow = [
        slow_vsrn(regions.astype(float), in_float64(image), first_norm=first_norm, last_norm=bn)
        for regions in np.load(folder / "train_ims.npy")
    ]
    expect(checkpoint.embed(device="cpu"), slow, slow_captions(text))


@pytest.mark.parametrize(
    ("changes", "name", "recorded"),
    [
        ({}, "triplet_sh", dict.fromkeys(TRIPLETS, {"margin": 0.2})),
        ({"max_violation": False}, "triplet", dict.fromkeys(TRIPLETS, {"margin": 0.2})),
        ({"criterion": None}, "triplet_sh", dict.fromkeys(TRIPLETS, {"margin": 0.2})),
        ({"max_violation": np.bool_(0)}, "triplet", dict.fromkeys(TRIPLETS, {"margin": 0.2})),
        ({"margin": None}, "triplet_sh", {}),
        ({"margin": "0.3", "max_violation": "False"}, "triplet", dict.fromkeys(TRIPLETS, {"margin": 0.3})),
        ({"criterion": "ntxent", "tau": np.float64(0.07)}, "ntxent", {"ntxent": {"temperature": 0.07}}),
        ({"criterion": "ntxent", "tau": "warm"}, "ntxent", {}),
        ({"criterion": "ranking", "tau": 0.01}, "smoothap", {"smoothap": {"temperature": 0.01}}),
        ({"criterion": "hope"}, None, {}),
    ],
)  # fmt: skip
def test_the_loss_of_the_training_is_the_default(tmp_path, folder, changes, name, recorded):
    path = save(tmp_path / "m.pth.tar", vsepp_state(), text_state(), options(**changes))
    checkpoint = cocos.open(path, data=folder)
    assert (checkpoint.settings.loss, checkpoint.settings.parameters) == (name, recorded)
    loss, origin = checkpoint.loss()
    assert cocos.losses.find_file(type(loss).__name__.replace("SH", "_SH")) == (name or "ntxent")
    assert ("recorded in the checkpoint" in origin) == bool(recorded)
    for key in recorded.get(name, {}):
        assert (checkpoint.loss(None, {key: 0.35})[0]).parameters[key] == 0.35, "what is given wins"


@pytest.mark.parametrize(("caption", "expected"), [*CAPTIONS.items(), *MORE_TOKENS.items()])
def test_captions_are_cut_as_in_the_training_code(caption, expected):
    assert vocabulary.tokens(caption) == expected


# The data folder.


def test_data_and_vocabulary_are_found_beside_each_other(tmp_path, folder):
    image, text = vsepp_state(), text_state()
    given = cocos.open(save(tmp_path / "m.pth.tar", image, text, options()), data=folder.parent).embed(device="cpu")
    recorded = options(data_path=str(folder.parent))
    words = json.dumps({"word2idx": VOCABULARY})
    near = (folder, folder.parent, tmp_path)
    for place in (*near[:2], *(each / "vocab" for each in near)):
        (folder / "f30k_precomp_vocab.pkl").unlink(missing_ok=True)
        place.mkdir(exist_ok=True)
        (place / "f30k_precomp_vocab.json").write_text(words)
        found = cocos.open(save(tmp_path / "n.pth.tar", image, text, recorded))
        assert found.splits == ("train",)
        torch.testing.assert_close(found.embed(device="cpu").candidate, given.candidate, rtol=0, atol=0)
        (place / "f30k_precomp_vocab.json").unlink()


def _rewrite(name, content):
    def change(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def _features(array):
    return lambda folder: np.save(folder / "train_ims.npy", array)


PICKLE = "f30k_precomp_vocab.pkl"


TROUBLES = {
    "no folder": (lambda f: f.rename(f.with_name("moved")), "file not found"),
    "no vocabulary": (lambda f: (f / PICKLE).unlink(), "f30k_precomp_vocab.pkl or f30k_precomp_vocab.json, is not in"),
    "another width": (_features(np.ones((6, 4), "float32")), "cannot be multiplied"),
    "regions": (_features(np.ones((6, 3, FEATURES), "float32")), "expected floats (6, D)"),
    "fewer words": (_rewrite(PICKLE, pickled({w: i for w, i in VOCABULARY.items() if i < 20})), "20 words"),
    "an id too large": (_rewrite(PICKLE, pickled(VOCABULARY | {"!": 99})), "ids 0 to 2"),
    "no unk": (_rewrite(PICKLE, pickled({f"w{i}": i for i in range(len(WORDS))})), "<pad> <start> <end> <unk>"),
    "ids of text": (_rewrite(PICKLE, pickled({w: str(i) for w, i in VOCABULARY.items()})), "word2idx"),
    "a list": (_rewrite(PICKLE, pickle.dumps([1], 2)), "0 words, expected"),
    "the class itself": (_rewrite(PICKLE, b"c__main__\nVocabulary\n."), "0 words, expected"),
    "a damaged pickle": (_rewrite(PICKLE, pickled(VOCABULARY)[:40]), PICKLE),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_with_the_data_is_one_clear_sentence(tmp_path, folder, trouble):
    change, sentence = TROUBLES[trouble]
    path = save(tmp_path / "m.pth.tar", vsepp_state(), text_state(), options())
    change(folder)
    with pytest.raises(InputError) as caught:
        cocos.open(path, data=folder).embed(device="cpu")
    assert sentence in str(caught.value) and "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


# Pickles that ask for more than words.


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def _hostile(marker):
    run = Call(os.system, f"touch {marker}")
    yield from (pickle.dumps(run, protocol) for protocol in (0, 1, 2, 3, 4, 5))
    yield pickled({"<pad>": run})
    yield pickle.dumps(Call(eval, f"open({str(marker)!r}, 'w')"), 4)
    yield pickle.dumps(Call(getattr, "", "join"), 2)
    yield b"cos\nsystem.Vocabulary\n."
    yield b"\x80\x04\x8c\x02os\x8c\x11system.Vocabulary\x93."
    yield f"(S'touch {marker}'\nios\nsystem\n.".encode()


def test_a_hostile_vocabulary_runs_nothing(tmp_path, folder):
    marker = tmp_path / "marker"
    checkpoint = cocos.open(save(tmp_path / "m.pth.tar", vsepp_state(), text_state(), options()), data=folder)
    for number, content in enumerate(_hostile(marker)):
        (folder / PICKLE).write_bytes(content)
        with pytest.raises(UnsafeFile, match="unsafe class"):
            checkpoint.embed(device="cpu")
        assert not marker.exists(), number


@pytest.mark.parametrize("module", ["__main__", "vocab", "vsepp.vocab"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_vocabulary_may_come_from_any_module_and_protocol(tmp_path, module, protocol):
    (tmp_path / "x_vocab.pkl").write_bytes(pickled(VOCABULARY, module, protocol))
    assert vocabulary.read(tmp_path / "x_vocab.pkl", len(WORDS)) == VOCABULARY


def test_a_vocabulary_of_python_2(tmp_path):
    words = b"".join(b"U" + bytes([len(w)]) + w.encode() + b"K" + bytes([i]) for w, i in VOCABULARY.items())
    content = (
        b"\x80\x02c__main__\nVocabulary\n)\x81}U\x08word2idx}(" + words + b"usb."
    )  # SHORT_BINSTRING: str of Python 2
    (tmp_path / "x_vocab.pkl").write_bytes(content)
    assert vocabulary.read(tmp_path / "x_vocab.pkl", len(WORDS)) == VOCABULARY


# Checkpoints that open and cannot be run.


@pytest.mark.parametrize("name", ["vsepp", "vsrn"])
def test_published_names_and_shapes_are_loaded(tmp_path, name):
    """The keys are those of the published code, the sizes are smaller."""
    sizes = {1024: 6, 3072: 18, 2048: 6, 6144: 18, 4096: 5, 300: 4, 11755: 26}
    small = {"image": {}, "text": {}}
    for side, state in small.items():
        for key, shape in PUBLISHED[name][side].items():
            state[key] = torch.zeros([sizes.get(size, size) for size in shape])
    size = len(small["text"]["embed.weight"])
    words = dict.fromkeys(vocabulary.SPECIAL) | {f"w{number}": 0 for number in range(size - 4)}
    ids = {word: number for number, word in enumerate(words)}
    (tmp_path / "f30k_precomp_vocab.json").write_text(json.dumps(ids))
    path = save(tmp_path / "m.pth.tar", small["image"], small["text"], options(vocab_size=size))
    model = cocos.open(path).model
    loaded = {f"{side}.{key}": value.shape for side, state in small.items() for key, value in state.items()}
    assert {key: value.shape for key, value in model.state_dict().items()} == loaded


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({"measure": "order"}, {}),
        ({"cross_attn": "t2i"}, {}),
        ({}, {"attention.weight": torch.ones(2)}),
    ],
)
def test_other_training_is_described_and_refused(tmp_path, folder, changes, extra):
    path = save(tmp_path / "m.pth.tar", vsepp_state() | extra, text_state(), options(**changes))
    assert cocos.checkpoints.inspect(path)["contents"]["epoch"] == 7
    expected = "attention.weight" if extra and not changes else str(next(iter(changes.values()), ""))
    with pytest.raises(InputError, match=expected):
        cocos.open(path, data=folder).embed(device="cpu")


def test_options_are_plain_data(tmp_path):
    odd = dict.fromkeys(PUBLISHED["vsepp"]["opt"], np.float32(0.5)) | {"logger_name": Path("runs"), "resume": None}
    odd |= {"vocab_size": len(WORDS), "measure": "cosine", "criterion": "ntxent", "data_path": None}
    path = save(tmp_path / "m.pth.tar", vsepp_state(), text_state(), odd, Eiters=np.int64(5))
    contents = json.loads(json.dumps(cocos.open(path).contents))
    assert contents["opt"].keys() == set(PUBLISHED["vsepp"]["opt"]) and contents["opt"]["margin"] == 0.5
    assert (contents["best_rsum"], contents["Eiters"], contents["opt"]["logger_name"]) == (401.5, 5, "runs")
    with pytest.raises(InputError, match="--data"):
        cocos.open(path).embed()
