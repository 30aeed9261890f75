"""CLIP and SigLIP: both towers against transformers' own forward; what checkpoints of open_clip record."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import normalize

from cocos import checkpoints
from cocos.base.errors import InputError
from cocos.checkpoints import formats
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import huggingface

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
VOCABULARY = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), "th", "the</w>"]
TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXTS = ["the cat", "a", "", "the the dog runs in a big park"]
DRAW = torch.Generator().manual_seed(2)
IMAGES = [
    torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=DRAW) for size in ((20, 27), (33, 17), (16, 16))
]


def opened(path):
    """The checkpoint in a file or folder."""
    file = File(path)
    return formats.format_of(file).read(file)


def saved(folder, kind):
    """Save a tiny CLIP or SigLIP of random weights, and return the library's own model."""
    library = pytest.importorskip("transformers")
    text = TOWER | {"vocab_size": len(VOCABULARY), "max_position_embeddings": 12}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = TOWER | {"image_size": 16, "patch_size": 8}
    torch.manual_seed(0)
    if kind == "clip":
        model = library.CLIPModel(library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
    else:
        text["projection_size"] = 16
        model = library.SiglipModel(library.SiglipConfig(text_config=text, vision_config=vision))
        model.logit_scale.data.fill_(np.log(20.0))
        model.logit_bias.data.fill_(-9.0)
    save_file({name: each.contiguous() for name, each in model.state_dict().items()}, folder / "model.safetensors")
    about = {"model_type": kind, "text_config": text, "vision_config": vision, "projection_dim": 8}
    (folder / "config.json").write_text(json.dumps(about))
    (folder / "vocab.json").write_text(json.dumps({token: row for row, token in enumerate(VOCABULARY)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n")
    return model.eval()


def ids(text, longest):
    """Tokens by hand: `the` is one token, every other word its letters."""
    pieces = []
    for word in text.split():
        pieces += ["the</w>"] if word == "the" else [*word[:-1], f"{word[-1]}</w>"]
    return [0, *(VOCABULARY.index(piece) for piece in pieces[: longest - 2]), 1]


def pixels(image, side, *, square):
    """Prepare an image by hand: the shorter side, or both, to `side`, the centre, 0 to 1, mean and deviation."""
    height, width = image.shape[1:]
    low = min(height, width)
    size = (side, side) if square else (width * side // low, height * side // low)
    array = np.asarray(
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize(size, Image.Resampling.BICUBIC), np.float64
    )
    top, left = (array.shape[0] - side) // 2, (array.shape[1] - side) // 2
    array = array[top : top + side, left : left + side] / 255
    mean, std = ([0.5] * 3, [0.5] * 3) if square else (huggingface.CLIP_MEAN, huggingface.CLIP_STD)
    return torch.tensor((array - mean) / std).permute(2, 0, 1).float()


def own(output):
    """Unit vectors from what the library returns, which depends on its version."""
    return normalize(getattr(output, "pooler_output", output), dim=-1)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@torch.no_grad()
def test_both_towers_equal_those_of_the_library(tmp_path, kind):
    """Texts of different length together; images of different size."""
    model, checkpoint = saved(tmp_path, kind), opened(tmp_path)
    texts, images = (
        checkpoint.model.encode(items, name, "query") for items, name in ((TEXTS, "text"), (IMAGES, "image"))
    )
    for row, text in enumerate(TEXTS):
        tokens = ids(text, 12)
        tokens += [1] * (12 - len(tokens)) if kind == "siglip" else []
        torch.testing.assert_close(
            texts[row], own(model.get_text_features(torch.tensor([tokens])))[0], atol=1e-6, rtol=1e-5
        )
    prepared = torch.stack([pixels(image, 16, square=kind == "siglip") for image in IMAGES])
    torch.testing.assert_close(images, own(model.get_image_features(prepared)), atol=1e-6, rtol=1e-5)


def test_scale_and_bias_are_read_without_building_a_model(tmp_path, monkeypatch):
    """Also where the library is missing."""
    saved(tmp_path, "siglip")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    checkpoint = opened(tmp_path)
    assert checkpoint.contents["scale"] == pytest.approx(20)
    assert checkpoint.contents["bias"] == pytest.approx(-9)
    assert checkpoint.recorded["ntxent"]["temperature"] == pytest.approx(1 / 20)
    loss, _ = checkpoint.loss()  # the one that it was trained with
    assert type(loss).__name__ == "SigLIP" and (loss.scale, loss.bias) == (pytest.approx(20), pytest.approx(-9))
    with pytest.raises(InputError, match="transformers"):
        _ = checkpoint.model


def test_a_preprocessor_of_another_kind_is_refused(tmp_path):
    """Pixels by a filter that is not known here."""
    saved(tmp_path, "clip")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"resample": 5}))
    with pytest.raises(InputError, match="resample 5"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("bias", "run", "loss"),
    [(None, None, "ntxent"), (-12.5, None, "siglip"), (-12.5, "True", "siglip"), (-12.5, "False", "ntxent")],
)
def test_a_bias_is_that_of_siglip_unless_the_run_says_otherwise(tmp_path, bias, run, loss):
    """open_clip writes a bias with either loss, and `siglip` into the parameters of the run."""
    state = {"visual.proj": torch.ones(4, 2), "logit_scale": torch.tensor(np.log(50.0))}
    state |= {} if bias is None else {"logit_bias": torch.tensor(bias)}
    torch.save({"epoch": 1, "state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "epoch_1.pt")
    if run:
        (tmp_path / "params.txt").write_text(f"model: ViT-B-32\nsiglip: {run}\n")
    found = checkpoints.inspect(tmp_path / "epoch_1.pt")
    assert "--model file.py:build" in found["next"] and found["training"] == {"epoch": 1}
    checkpoint = checkpoints.open(tmp_path / "epoch_1.pt", model=lambda content: torch.nn.Identity())
    assert (checkpoint.trained_with or "ntxent") == loss and checkpoint.recorded == found["recorded"]
    expected = {"temperature": 1 / 50} if loss == "ntxent" else {"scale": 50, "bias": bias}
    assert checkpoint.loss()[0].parameters == pytest.approx(expected)
