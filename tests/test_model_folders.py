"""Folders that a library builds: sentence-transformers, transformers, CLIP, SigLIP, open_clip; refusals without one."""

import importlib
import json

import numpy as np
import pytest
import torch

import cocos
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import huggingface, open_clip
from golden import files as fixtures

pytestmark = pytest.mark.filterwarnings("ignore")
# Of the images of CLIP. Source: Radford et al. 2021.
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
TEXTS = ["the cat sat on the mat.", "a dog", "Cats", "the dogs sat on a cat"]


def imported(name):
    """Import an optional library, or skip: a broken installation raises anything."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name} cannot be imported ({type(error).__name__})")


def data(*texts):
    return {"query": list(texts), "candidate": list(texts)[::-1]}


def mean_of_tokens(folder):
    """Encode with transformers alone: the mean of the last hidden states of each text."""
    library = imported("transformers")
    model, tokenizer = library.AutoModel.from_pretrained(folder), library.AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.no_grad():
        for text in TEXTS:
            states = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=16)).last_hidden_state
            rows.append(states[0].mean(dim=0))
    return torch.stack(rows)


def test_text_folder_is_the_mean_of_tokens(tmp_path):
    imported("sentence_transformers")
    folder = fixtures.bert_folder(tmp_path / "model")
    checkpoint = cocos.open(folder, data=data(*TEXTS))
    assert checkpoint.format == "huggingface" and any("pooling" in note for note in checkpoint.notes)
    torch.testing.assert_close(checkpoint.embed().query, mean_of_tokens(folder), rtol=0, atol=1e-6)


def test_sentence_folder_equals_its_library(tmp_path):
    library = imported("sentence_transformers")
    checkpoint = fixtures.sentence_transformers(tmp_path)[""]
    model = library.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    rows = checkpoint.embed(device="cpu")
    texts = list(checkpoint.training.load("train").query.items)
    expected = model.encode([f"query: {text}" for text in texts])
    np.testing.assert_allclose(rows.query, expected, rtol=0, atol=1e-6)
    assert checkpoint.format == "sentence_transformers" and rows.query.norm(dim=1).allclose(torch.ones(len(texts)))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_image_text_folder_equals_its_library(tmp_path, kind):
    library = imported("transformers")
    folder = tmp_path / "model"
    checkpoint = fixtures.image_text_folder(tmp_path, kind)[""]
    model = library.AutoModel.from_pretrained(folder)
    images = torch.randint(0, 256, (2, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    mean = torch.tensor(CLIP_MEAN if kind == "clip" else [0.5] * 3).view(3, 1, 1)
    std = torch.tensor(CLIP_STD if kind == "clip" else [0.5] * 3).view(3, 1, 1)
    with torch.no_grad():
        vectors = model.vision_model(pixel_values=(images / 255 - mean) / std).pooler_output
        vectors = model.visual_projection(vectors) if kind == "clip" else vectors
    expected = torch.nn.functional.normalize(vectors, dim=1)
    torch.testing.assert_close(checkpoint.model.encode(images, "image", "query"), expected, rtol=0, atol=1e-6)
    grey = checkpoint.model.encode(images[:, :1], "image", "query")
    assert torch.equal(grey, checkpoint.model.encode(images[:, :1].expand(-1, 3, -1, -1), "image", "query"))
    assert checkpoint.settings.loss == ("siglip" if kind == "siglip" else "ntxent")
    assert checkpoint.settings.parameters["ntxent"]["temperature"] == pytest.approx(np.exp(-3.0), rel=1e-7)


def test_open_clip_folder_equals_its_library(tmp_path):
    library = imported("open_clip")
    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    }
    config["text_cfg"] = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    model = library.CLIP(**config)
    (tmp_path / open_clip.CONFIG).write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {"size": 16}}))
    torch.save(model.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    checkpoint = cocos.open(tmp_path, data=data(*TEXTS))
    tokens = library.get_tokenizer("ViT-B-32")(TEXTS)
    with torch.no_grad():
        expected = model.eval().encode_text(tokens, normalize=True)
    torch.testing.assert_close(checkpoint.embed().query, expected, rtol=0, atol=1e-6)
    assert checkpoint.settings.parameters["ntxent"]["temperature"] == pytest.approx(0.07, rel=1e-5)


# Refusals without a library: nothing of these folders is handed over.


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


BERT = {"config_json": {"model_type": "bert"}}
MODULES = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
DENSE = [*MODULES, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
# Name -> files of the folder, the value that the message names, and whether it is unsafe.
REFUSED = {
    "auto_map": ({"config_json": {"model_type": "bert", "auto_map": {"AutoModel": "m.M"}}}, "auto_map", True),
    "tokenizer": (BERT | {"tokenizer_config_json": {"auto_map": {}}}, "auto_map", True),
    "nested": (
        {"open_clip_config_json": {"model_cfg": {"text_cfg": {"tokenizer_kwargs": {"trust_remote_code": True}}}}},
        "trust_remote_code",
        True,
    ),
    "module": (BERT | {"modules_json": [{"type": "mine.Transformer"}]}, "mine.Transformer", True),
    "activation": (
        BERT | {"modules_json": DENSE, "2_Dense__config_json": {"activation_function": "os.getcwd"}},
        "os.getcwd",
        True,
    ),
    "unknown activation": (
        BERT | {"modules_json": DENSE, "2_Dense__config_json": {"activation_function": "torch.nn.Softmin"}},
        "Softmin",
        True,
    ),
    "damaged": ({"config_json": {"model_type": "bert"}, "modules_json": 3}, "cannot be read", False),
}


@pytest.mark.parametrize("name", REFUSED)
def test_folder_is_refused_before_its_library(tmp_path, name):
    files, value, unsafe = REFUSED[name]
    folder = write(tmp_path, **files)
    torch.save({"w": torch.ones(2)}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=value) as error:
        cocos.open(folder)
    assert isinstance(error.value, UnsafeFile) == unsafe


def test_missing_weights_and_library_are_named(tmp_path, monkeypatch):
    folder = write(tmp_path / "model", **BERT)
    with pytest.raises(InputError, match="copy the weights"):
        cocos.open(folder)
    torch.save({"w": torch.ones(2)}, folder / "pytorch_model.bin")
    assert huggingface.sniff(File(folder))
    monkeypatch.setitem(importlib.sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'cocos-metric\[text\]'"):
        cocos.open(folder, data=data(*TEXTS)).embed()
