"""Networks of images: published names, forward passes against slow ones, files as people save them."""

import argparse
import hashlib
import json
import sys
import types
from collections import OrderedDict

import numpy as np
import pytest
import torch

from cocos.base.errors import InputError
from cocos.checkpoints import encoders, formats
from cocos.checkpoints.encoders import without_memory
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import _networks, _trunks, iresnet, vsepp, warpnet
from cocos.checkpoints.pictures import Preparation
from cocos.checkpoints.state_dicts import StateDict
from cocos.checkpoints.words import SPECIAL
from cocos.data import image_captions
from oracles import vision

RESNET = {"stem": 4, "num_blocks": [2, 1, 1, 1], "widths": [4, 6, 8, 10], "outputs": [16, 24, 32, 40]}
RESNET |= {"bottleneck": True, "groups": 2}
BASIC = {"stem": 4, "num_blocks": [1, 2, 1, 1], "widths": [4, 6, 8, 10], "outputs": [4, 6, 8, 10], "bottleneck": False}
VGG = {"parts": [[3], [4], [4, 5], [5], [6, 6]], "batch_norm": False, "hidden": 7}
FACES = {"num_blocks": [1, 2, 1, 1], "widths": [4, 4, 5, 6, 7], "dimensions": 6, "side": 32, "places": 2}


def filled(model, seed=0):
    """Weights that are different from their initial values, so that none of them can be forgotten."""
    random = torch.Generator().manual_seed(seed)
    state = OrderedDict()
    for name, each in model.state_dict().items():
        values = torch.randn(each.shape, generator=random) * (0.5 if each.ndim < 2 else (each[0].numel()) ** -0.5)
        state[name] = values.abs() + 0.5 if name.endswith("running_var") else values
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(3)
    return state


def in_float64(state, prefix=""):
    return {key.removeprefix(prefix): each.double().numpy() for key, each in state.items() if key.startswith(prefix)}


PASSES = {
    "resnet": (lambda: _trunks.network("resnet", RESNET), 64, vision.resnet),
    "resnet, basic, fc": (lambda: _trunks.network("resnet", BASIC | {"classes": 5}), 64, vision.resnet),
    "vgg": (lambda: _trunks.network("vgg", VGG | {"classes": 5}), 64, vision.vgg),
    "vgg, batch norm": (lambda: _trunks.network("vgg", VGG | {"batch_norm": True}), 224, vision.vgg),
    "warpnet": (lambda: warpnet.build(dimensions=5, **RESNET, classes=3), 64, vision.warpnet),
    "iresnet": (lambda: iresnet.build(**FACES), 32, vision.iresnet),
    "iresnet, kernel 7": (lambda: iresnet.build(**FACES | {"kernel": 7}), 32, vision.iresnet),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_forward_pass_is_the_slow_one(name):
    build, side, slow = PASSES[name]
    model = build()
    state = filled(model)
    model = encoders.freeze(model, state)
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(model(images), slow(images.double().numpy(), in_float64(state)), rtol=2e-5, atol=2e-5)


# Number of names of published state dicts, and the beginning of the sha256 of their sorted lines "NAME SHAPE". Sources:
# torchvision for ResNet and VGG; the published code of the warped softmax, commit 4246433, for WarpNet and IResNet-100,
# and that of Bleeker & de Rijke, commit 9800594, for the image tower of VSE++ on ResNet-50.
PUBLISHED = {
    "resnet18": (122, "867b8d8ae95f5a28"),
    "resnet50": (320, "2d5b8870b35e1530"),
    "resnet152": (932, "f11957010a75631a"),
    "vgg19": (38, "2ae6c231664ee367"),
    "warpnet": (322, "804b400beb8e7cde"),
    "iresnet100": (919, "b57a8a326982b000"),
    "vsepp": (320, "8e2b1a3c17f30a59"),
}
SIZES = {
    "resnet18": ([2, 2, 2, 2], False),
    "resnet50": ([3, 4, 6, 3], True),
    "resnet152": ([3, 8, 36, 3], True),
}


def resnet_sizes(name):
    blocks, bottleneck = SIZES[name]
    widths = [64, 128, 256, 512]
    outputs = [4 * width for width in widths] if bottleneck else widths
    return {"stem": 64, "num_blocks": blocks, "widths": widths, "outputs": outputs, "bottleneck": bottleneck}


def digest(state):
    lines = sorted(f"{key} {list(each.shape)}" for key, each in state.items())
    return len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def vgg19():
    parts = [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4]
    return _trunks.network("vgg", {"parts": parts, "batch_norm": False, "hidden": 4096, "classes": 1000})


def vsepp_tower():
    tower = vsepp.build(
        vocabulary=dict.fromkeys(SPECIAL, 0),
        img_dim=2048,
        cnn={"trunk": "resnet", "sizes": resnet_sizes("resnet50")},
    )
    state = {key.removeprefix("image."): each for key, each in tower.state_dict().items() if key.startswith("image.")}
    return {key.replace("cnn.", "cnn.module."): each for key, each in state.items()}


BUILDERS = {
    **{name: lambda name=name: _trunks.ResNet(**resnet_sizes(name), classes=1000) for name in SIZES},
    "vgg19": vgg19,
    "warpnet": lambda: warpnet.build(dimensions=512, **resnet_sizes("resnet50"), classes=1000),
    "iresnet100": lambda: iresnet.build(num_blocks=[3, 13, 30, 3], kernel=7),
    "vsepp": vsepp_tower,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_names_and_shapes_are_those_of_the_published_files(name):
    with without_memory():
        built = BUILDERS[name]()
    assert digest(built if isinstance(built, dict) else built.state_dict()) == PUBLISHED[name]


@pytest.mark.parametrize(("before", "after"), [((40, 30), (16, 16)), ((9, 13), (20, 20)), ((28, 28), (256, 256))])
def test_images_are_resized_as_by_the_triangle_filter(before, after):
    image = torch.randint(0, 256, (1, *before), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = Preparation(after, None, (0.0,), (1 / 255,))([image])[0, 0]
    slow = vision.triangle(image[0].double().numpy(), after)
    assert abs(found.numpy() - slow).max() < 1.01, "Pillow's weights are fixed-point numbers"


def test_the_middle_of_an_image_is_read_and_normalised():
    image = torch.arange(6 * 9, dtype=torch.uint8).view(1, 6, 9).expand(3, -1, -1)
    prepare = Preparation(None, (4, 4), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    found = prepare([image])[0]
    for channel, (mean, std) in enumerate(zip(prepare.mean, prepare.std, strict=True)):
        np.testing.assert_allclose(found[channel], (image[0, 1:5, 2:6].numpy() / 255 - mean) / std, rtol=1e-5)
    padded = Preparation(None, (8, 4), (0.0,) * 3, (1.0,) * 3)([image])[0, 0]
    assert padded.shape == (8, 4) and (padded[0] == 0).all() and (padded[7] == 0).all()
    assert Preparation(12, None)([image]).shape == (1, 3, 12, 18)
    for wrong in (image.float(), image[0], image.expand(3, -1, -1)[:2]):
        with pytest.raises(InputError, match=r"expected \(3, height, width\)"):
            prepare([wrong])


# Files as people save them.


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def opened(path):
    """Open a file or folder that exactly one format recognises, before those that are asked last."""
    file = File(path)
    first = [
        each
        for each in map(formats.load, formats.names())
        if each.recognises(file) and not getattr(each, "LAST", False)
    ]
    assert len(first) == 1
    return first[0].read(file, None)


def vectors(checkpoint, images):
    return checkpoint.model.encode(images, "image", "query")


IMAGES = torch.randint(0, 256, (3, 3, 40, 40), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
FAMILIES = {
    "iresnet": (lambda: iresnet.build(**FACES), None),
    "warpnet": (lambda: warpnet.build(dimensions=5, **RESNET, classes=3), None),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_found_and_loaded_strictly(tmp_path, family):
    build, key = FAMILIES[family]
    state = filled(build())
    wrapped = OrderedDict((f"module.{name}", each) for name, each in state.items())
    checkpoint = opened(save(tmp_path / "a.pth", {key: wrapped, "step": 3} if key else wrapped))
    assert checkpoint.format == family
    held = list(checkpoint.model.state_dict().values())
    assert [torch.equal(one, other) for one, other in zip(held, state.values(), strict=True)] == [True] * len(held)
    for change in (lambda s: s.popitem(last=False), lambda s: s.update(more=torch.ones(1))):
        change(other := OrderedDict(state))
        assert _networks.in_family(StateDict("", other), family) is None


def test_counters_that_an_old_pytorch_did_not_save_are_added(tmp_path):
    state = filled(warpnet.build(dimensions=5, **BASIC))
    old = {key: each for key, each in state.items() if not key.endswith("num_batches_tracked")}
    torch.testing.assert_close(
        vectors(opened(save(tmp_path / "old.pth", old)), IMAGES),
        vectors(opened(save(tmp_path / "new.pth", state)), IMAGES),
    )


def test_half_precision_is_encoded_in_float32(tmp_path):
    state = {
        key: each.half() if each.is_floating_point() else each
        for key, each in filled(warpnet.build(dimensions=5, **BASIC)).items()
    }
    assert vectors(opened(save(tmp_path / "a.pth", state)), IMAGES).dtype == torch.float32


def test_proxies_of_the_same_epoch_are_found(tmp_path):
    network = save(
        tmp_path / "Checkpoints" / "WarpNet_40_0.712Recall@1.pth", filled(warpnet.build(dimensions=5, **RESNET))
    )
    assert opened(network).proxies is None
    other = tmp_path / "Proxies" / "Proxy_50_0.712Recall@1.pth"
    proxies = save(tmp_path / "Proxies" / "Proxy_40_0.712Recall@1.pth", {"Proxies": torch.ones(7, 5)})
    save(other, {"Proxies": torch.zeros(7, 5)})
    found = opened(network)
    assert found.proxies.tolist() == torch.ones(7, 5).tolist() and found.trained_with == "warped_softmax"
    save(proxies, {"Proxies": torch.ones(7, 4)})
    with pytest.raises(InputError, match=r"Proxies \(7, 4\), expected \(classes, 5\)"):
        opened(network)


def test_class_weights_of_all_ranks_are_found(tmp_path):
    network = save(tmp_path / "model.pt", filled(iresnet.build(**FACES)))
    for rank, number in ((1, 3), (0, 2)):
        save(tmp_path / f"softmax_fc_gpu_{rank}.pt", {"weight": torch.full((number, 6), float(rank))})
    assert opened(network).proxies[:, 0].tolist() == [0, 0, 1, 1, 1]
    save(tmp_path / "softmax_fc_gpu_0.pt", {"weight": torch.ones(2, 7)})
    save(tmp_path / "softmax_fc_gpu_1.pt", {"weight": torch.ones(2, 7)})
    with pytest.raises(InputError, match=r"\(4, 7\), expected \(classes, 6\)"):
        opened(network)


CONFIG = {"architecture": "resnet50", "num_classes": 7, "pretrained_cfg": {"input_size": [3, 32, 48], "crop_pct": 0.8}}


def test_other_architectures_of_timm_are_built_by_timm(tmp_path, monkeypatch):
    save(tmp_path / "pytorch_model.bin", {"stem.weight": torch.full((4, 3), 2.0), "head.fc.weight": torch.ones(7, 4)})
    config = CONFIG | {
        "architecture": "tiny.in1k",
        "pretrained_cfg": CONFIG["pretrained_cfg"] | {"classifier": "head.fc"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="pip install timm"):
        _ = opened(tmp_path).model

    def create(name, pretrained, num_classes):
        assert (name, pretrained, num_classes) == ("tiny", False, 0)
        return torch.nn.Sequential(OrderedDict(stem=torch.nn.Linear(3, 4, bias=False)))

    library = types.SimpleNamespace(is_model="tiny".__eq__, list_models=lambda: ["tiny"], create_model=create)
    monkeypatch.setitem(sys.modules, "timm", library)
    model = opened(tmp_path).model
    assert model.network(torch.ones(1, 3)).tolist() == [[6.0] * 4]
    assert model.preparation == Preparation(40, (32, 48), resampling="bicubic")
    for name in ("hf-hub:some/model", "local-dir:x", "large"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"architecture": name}))
        with pytest.raises(InputError, match="unknown architecture of timm"):
            _ = opened(tmp_path).model


# VSE++ on images.

WORDS = [*SPECIAL, "a", "cat", "dog"]


@pytest.mark.parametrize("trunk", ["resnet", "vgg", "vgg of 2017"])
def test_vsepp_reads_images(tmp_path, trunk):
    sizes = RESNET if trunk == "resnet" else VGG
    network = _trunks.network(trunk[:6].strip(" of"), sizes)
    state = filled(network)
    image = {f"cnn.{name}": each for name, each in published(trunk, state).items()}
    image |= {"fc.weight": torch.randn(6, network.width), "fc.bias": torch.randn(6)}
    text = filled(torch.nn.GRU(4, 6))
    text = {"embed.weight": torch.randn(len(WORDS), 4)} | {f"rnn.{name}": each for name, each in text.items()}
    opt = argparse.Namespace(data_name="coco", cnn_type=trunk, margin=0.2, max_violation=True, measure="cosine")
    path = save(tmp_path / "model_best.pth.tar", {"epoch": 1, "model": [image, text], "opt": opt, "Eiters": 2})
    (tmp_path / "coco_vocab.json").write_text(json.dumps({word: number for number, word in enumerate(WORDS)}))
    checkpoint = opened(path)
    assert checkpoint.format == "vsepp" and checkpoint.model.kinds == ("image", "text")
    images = checkpoint.model.image.preparation(IMAGES[:1])
    slow = {"resnet": vision.resnet}.get(trunk, vision.vgg)(images.double().numpy(), in_float64(state))
    found = vision.unit(vision.linear(vision.unit(slow), in_float64(image), "fc"))
    np.testing.assert_allclose(checkpoint.model.encode(IMAGES[:1], "image", "query"), found, atol=2e-5)
    training = image_captions(
        IMAGES, ["a cat", "a dog", "cat"], torch.arange(3), torch.arange(3), name="x", split="train"
    )
    embeddings = encoders.embed(lambda: checkpoint.model, training, device="cpu")
    assert embeddings.query.shape == embeddings.candidate.shape == (3, 6)


def published(trunk, state):
    """Names as VSE++ saves them: DataParallel around a ResNet, or around the convolutions of a VGG."""
    if trunk == "resnet":
        return {f"module.{name}": each for name, each in state.items()}
    named = {name.replace("features.", "features.module."): each for name, each in state.items()}
    if trunk == "vgg":
        return named
    return {
        name.replace("classifier.3", "classifier.4").replace("classifier.0", "classifier.1"): v
        for name, v in named.items()
    }
