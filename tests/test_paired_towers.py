"""CLIP, SigLIP and open_clip: both towers against transformers' own forward, and against a slow derivation."""

import gzip
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import gelu, layer_norm, normalize

from cocos import losses
from cocos.base.errors import InputError
from cocos.checkpoints import formats
from cocos.checkpoints.files import file_or_folder
from cocos.checkpoints.formats import open_clip

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
    file = file_or_folder(path)
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
    mean, std = ([0.5] * 3, [0.5] * 3) if square else (open_clip.CLIP_MEAN, open_clip.CLIP_STD)
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


WIDTH, JOINT, PLACES, PATCH, CUT = 64, 5, 16, 4, 16  # of one head, as the file cannot say how many there are


def open_clip_state(words):
    """Weights under the names of open_clip: towers of two layers over 4 x 4 patches."""
    draw = torch.Generator().manual_seed(3)
    shapes = {
        "visual.class_embedding": (WIDTH,),
        "visual.conv1.weight": (WIDTH, 3, PATCH, PATCH),
        "visual.positional_embedding": (PLACES + 1, WIDTH),
        "visual.proj": (WIDTH, JOINT),
        "token_embedding.weight": (words, WIDTH),
        "positional_embedding": (9, WIDTH),
        "text_projection": (WIDTH, JOINT),
    }
    for norm in ("visual.ln_pre", "visual.ln_post", "ln_final"):
        shapes |= {f"{norm}.weight": (WIDTH,), f"{norm}.bias": (WIDTH,)}
    for layer in (f"{side}transformer.resblocks.{row}." for side in ("visual.", "") for row in range(2)):
        shapes |= {f"{layer}attn.in_proj_weight": (3 * WIDTH, WIDTH), f"{layer}attn.in_proj_bias": (3 * WIDTH,)}
        parts = {"attn.out_proj": (WIDTH, WIDTH), "mlp.c_fc": (80, WIDTH), "mlp.c_proj": (WIDTH, 80)}
        parts |= {"ln_1": (WIDTH,), "ln_2": (WIDTH,)}
        shapes |= {f"{layer}{part}.weight": shape for part, shape in parts.items()}
        shapes |= {f"{layer}{part}.bias": shape[:1] for part, shape in parts.items()}
    state = {name: torch.randn(shape, generator=draw) / 4 for name, shape in shapes.items()}
    return state | {"logit_scale": torch.tensor(np.log(50.0))}


def norm(state, name, x):
    """Layer norm under a name."""
    return layer_norm(x, (WIDTH,), state[f"{name}.weight"], state[f"{name}.bias"])


def layers(state, prefix, x, activation, *, causal):
    """Two residual blocks with one head of attention, (T, WIDTH), written out."""
    for row in range(2):
        at = f"{prefix}transformer.resblocks.{row}."
        rows = norm(state, f"{at}ln_1", x) @ state[f"{at}attn.in_proj_weight"].T + state[f"{at}attn.in_proj_bias"]
        query, key, value = rows.chunk(3, dim=1)
        scores = query @ key.T / WIDTH**0.5
        scores = scores + torch.full_like(scores, -torch.inf).triu(1) if causal else scores
        mixed = scores.softmax(1) @ value
        x = x + mixed @ state[f"{at}attn.out_proj.weight"].T + state[f"{at}attn.out_proj.bias"]
        inner = activation(norm(state, f"{at}ln_2", x) @ state[f"{at}mlp.c_fc.weight"].T + state[f"{at}mlp.c_fc.bias"])
        x = x + inner @ state[f"{at}mlp.c_proj.weight"].T + state[f"{at}mlp.c_proj.bias"]
    return x


@pytest.mark.parametrize("quick", [False, True])
def test_an_epoch_of_open_clip_equals_a_slow_derivation(tmp_path, monkeypatch, quick):
    """Patches, class token, causal text tower pooled at its end; the activation by the name of the run."""
    pytest.importorskip("transformers")
    words = 512 + 2 + 2  # bytes, bytes that end a word, two merges, start and end
    monkeypatch.setattr(open_clip, "VOCABULARY", words)
    state = open_clip_state(words)
    record = {"epoch": 7, "name": f"ViT-B-32{'-quickgelu' if quick else ''}", "optimizer": {"state": {}}}
    torch.save(record | {"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "epoch_7.pt")
    with gzip.open(tmp_path / open_clip.MERGES, "wt") as stream:
        stream.write('"bpe_simple_vocab_16e6.txt#version: 0.2\nt h\nth e</w>\n')
    checkpoint = opened(tmp_path / "epoch_7.pt")
    assert checkpoint.recorded["ntxent"]["temperature"] == pytest.approx(1 / 50)
    assert checkpoint.contents["epoch"] == 7
    activation = (lambda x: x * torch.sigmoid(1.702 * x)) if quick else gelu

    found = checkpoint.model.encode(IMAGES[2:], "image", "query")[0]
    patches = pixels(IMAGES[2], CUT, square=False).unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)
    patches = patches.permute(1, 2, 0, 3, 4).reshape(PLACES, -1) @ state["visual.conv1.weight"].reshape(WIDTH, -1).T
    x = torch.cat([state["visual.class_embedding"][None], patches]) + state["visual.positional_embedding"]
    x = layers(state, "visual.", norm(state, "visual.ln_pre", x), activation, causal=False)
    expected = normalize(norm(state, "visual.ln_post", x[0]) @ state["visual.proj"], dim=0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)

    found = checkpoint.model.encode(["The  cab", "a"], "text", "query")[0]
    letters = {letter: ord(letter) - ord("!") for letter in "cab"}  # bytes come first, in the order of printing
    tokens = [words - 2, 513, letters["c"], letters["a"], 256 + letters["b"], words - 1]
    x = state["token_embedding.weight"][tokens] + state["positional_embedding"][: len(tokens)]
    x = norm(state, "ln_final", layers(state, "", x, activation, causal=True)[-1])
    torch.testing.assert_close(found, normalize(x @ state["text_projection"], dim=0), atol=1e-5, rtol=1e-4)


def test_towers_that_are_not_built_are_named(tmp_path):
    """Scale and size are told; what is not built is refused when it encodes."""
    state = open_clip_state(20)
    state["visual.transformer.resblocks.0.ls_1.gamma"] = torch.ones(WIDTH)
    torch.save({"epoch": 1, "state_dict": state}, tmp_path / "epoch_1.pt")
    checkpoint = opened(tmp_path / "epoch_1.pt")
    assert checkpoint.contents["scale"] == pytest.approx(50)
    with pytest.raises(InputError, match="ls_1"):
        _ = checkpoint.model
    state = open_clip_state(20) | {"visual.positional_embedding": torch.ones(8, WIDTH)}
    torch.save({"epoch": 1, "state_dict": state}, tmp_path / "epoch_1.pt")
    with pytest.raises(InputError, match="7 patches"):
        opened(tmp_path / "epoch_1.pt")


@pytest.mark.parametrize(
    ("bias", "run", "loss"),
    [(None, None, "ntxent"), (-12.5, None, "siglip"), (-12.5, "True", "siglip"), (-12.5, "False", "ntxent")],
)
def test_a_bias_is_that_of_siglip_unless_the_run_says_otherwise(tmp_path, bias, run, loss):
    """open_clip writes a bias with either loss, and `siglip` into the parameters of the run."""
    state = open_clip_state(20) | ({} if bias is None else {"logit_bias": torch.tensor(bias)})
    torch.save({"epoch": 1, "state_dict": state}, tmp_path / "epoch_1.pt")
    if run:
        (tmp_path / "params.txt").write_text(f"model: ViT-B-32\nsiglip: {run}\n")
    checkpoint = opened(tmp_path / "epoch_1.pt")
    assert checkpoint.trained_with == loss
    expected = {"temperature": 1 / 50} if loss == "ntxent" else {"scale": 50, "bias": bias}
    assert losses.parameters(checkpoint.loss()[0]) == pytest.approx(expected)
