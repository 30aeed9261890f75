"""Image networks built from their state dicts, against slow forward passes; the files of their training code."""

import argparse
import json
import sys
import types
from collections import OrderedDict

import numpy as np
import pytest
import torch

import cocos
from cocos.base.errors import InputError
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import iresnet, networks, timm, vocabulary, vsepp, warpnet
from cocos.checkpoints.pictures import Preparation
from golden import files as fixtures
from oracles import vision

IMAGES = torch.randint(0, 256, (3, 3, 40, 40), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def resnet(prefix="", basic=False, groups=1):
    """A ResNet or ResNeXt with a bottleneck in each stage, or with two basic blocks in the second one."""
    if not basic:
        shapes = fixtures.bottleneck_shapes(prefix)
        for name in [name for name in shapes if name.endswith("conv2.weight")]:
            width, inner, *kernel = shapes[name]
            shapes[name] = (width, inner // groups, *kernel)
        return {name: shape for name, shape in shapes.items() if ".fc." not in f".{name}"}
    shapes = {f"{prefix}conv1.weight": (4, 3, 7, 7)} | fixtures.norm_shapes(f"{prefix}bn1", 4)
    before = 4
    for stage, (width, blocks) in enumerate(((4, 1), (6, 2), (8, 1), (10, 1)), 1):
        for number in range(blocks):
            block = f"{prefix}layer{stage}.{number}"
            for place, inputs in ((1, before), (2, width)):
                shapes[f"{block}.conv{place}.weight"] = (width, inputs, 3, 3)
                shapes |= fixtures.norm_shapes(f"{block}.bn{place}", width)
            if before != width:
                shapes[f"{block}.downsample.0.weight"] = (width, before, 1, 1)
                shapes |= fixtures.norm_shapes(f"{block}.downsample.1", width)
            before = width
    return shapes


def faces(kernel):
    widths, shapes = (4, 4, 5, 6, 7), {"conv1.weight": (4, 3, kernel, kernel), "prelu.weight": (4,)}
    shapes |= fixtures.norm_shapes("bn1", 4)
    for stage, (before, after) in enumerate(zip(widths, widths[1:], strict=False), 1):
        for number in range(2 if stage == 2 else 1):
            block, inputs = f"layer{stage}.{number}", after if number else before
            shapes |= {f"{block}.conv1.weight": (after, inputs, 3, 3), f"{block}.conv2.weight": (after, after, 3, 3)}
            shapes |= {f"{block}.prelu.weight": (after,)} | fixtures.norm_shapes(f"{block}.bn1", inputs)
            shapes |= fixtures.norm_shapes(f"{block}.bn2", after) | fixtures.norm_shapes(f"{block}.bn3", after)
            if number == 0 and (stage > 1 or kernel == 3):
                shapes[f"{block}.downsample.0.weight"] = (after, inputs, 1, 1)
                shapes |= fixtures.norm_shapes(f"{block}.downsample.1", after)
    shapes |= fixtures.norm_shapes("bn2", 7) | {"fc.weight": (6, 28), "fc.bias": (6,)}
    return shapes | fixtures.norm_shapes("features", 6)


def warp(**options):
    return resnet("Backbone.", **options) | {"Backbone.Embedding.weight": (5, 40), "Backbone.Embedding.bias": (5,)}


def fill(shapes):
    return fixtures.state_dict(shapes, seed=5, size=0)


def in_float64(state):
    return {name: value.double().numpy() for name, value in state.items()}


# Name -> network, shapes, side of an image, slow forward pass.
PASSES = {
    "resnet": (networks.ResNet, resnet(), 64, vision.resnet),
    "resnext": (networks.ResNet, resnet(groups=2), 64, vision.resnet),
    "resnet, basic": (networks.ResNet, resnet(basic=True), 64, vision.resnet),
    "warpnet": (warpnet.WarpNet, warp(), 64, vision.warpnet),
    "iresnet, kernel 3": (iresnet.IResNet, faces(3), 32, vision.iresnet),
    "iresnet, kernel 7": (iresnet.IResNet, faces(7), 32, vision.iresnet),
}


@pytest.mark.parametrize("name", PASSES)
def test_forward_pass_equals_slow_one(name):
    network, shapes, side, slow = PASSES[name]
    state = fill(shapes)
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    vectors = networks.fill(network(state), state)(images)
    np.testing.assert_allclose(vectors, slow(images.double().numpy(), in_float64(state)), rtol=2e-5, atol=2e-5)


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


FAMILIES = {"warpnet": warp(), "iresnet": faces(3)}


@pytest.mark.parametrize("key", [None, "state_dict"])
@pytest.mark.parametrize("name", FAMILIES)
def test_network_is_recognised_and_loaded(tmp_path, name, key):
    state = fill(FAMILIES[name])
    parallel = {f"module.{key}": value for key, value in state.items()}
    checkpoint = cocos.open(save(tmp_path / "a.pth", {key: parallel, "step": 3} if key else parallel))
    assert checkpoint.format == name
    assert all(torch.equal(value, state[key]) for key, value in checkpoint.model.network.state_dict().items())


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_that_do_not_fit_are_refused(tmp_path, name):
    state = fill(FAMILIES[name])
    last = next(reversed([key for key in state if not key.endswith("num_batches_tracked")]))
    for change in ({"more": torch.ones(1)}, {last: None}, {last: torch.ones(11)}):
        wrong = {key: value for key, value in (state | change).items() if value is not None}
        with pytest.raises(InputError, match=next(iter(change)).rpartition(".")[2]):
            _ = cocos.open(save(tmp_path / "a.pth", wrong)).model


def test_old_counters_and_half_precision_are_loaded(tmp_path):
    state = fill(warp())
    half = {k: v.half() for k, v in state.items() if not k.endswith("num_batches_tracked")}
    right = cocos.open(save(tmp_path / "a.pth", state)).model.encode(IMAGES, "image", "query")
    vectors = cocos.open(save(tmp_path / "b.pth", half)).model.encode(IMAGES, "image", "query")
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, right, rtol=0.05, atol=0.05)


def test_proxies_of_the_same_epoch_are_found(tmp_path):
    network = save(tmp_path / "Checkpoints" / "WarpNet_40_0.712Recall@1.pth", fill(warp()))
    assert cocos.open(network).proxies is None
    save(tmp_path / "Proxies" / "Proxy_40_0.712Recall@1.pth", {"Proxies": torch.ones(7, 5)})
    save(tmp_path / "Proxies" / "Proxy_50_0.712Recall@1.pth", {"Proxies": torch.zeros(7, 5)})
    checkpoint = cocos.open(network)
    assert checkpoint.proxies.tolist() == torch.ones(7, 5).tolist() and checkpoint.settings.loss == "warped_softmax"


def test_class_weights_of_all_ranks_are_joined(tmp_path):
    network = save(tmp_path / "model.pt", fill(faces(3)))
    for rank, classes in ((1, 3), (0, 2)):
        save(tmp_path / f"softmax_fc_gpu_{rank}.pt", {"weight": torch.full((classes, 6), float(rank))})
    assert cocos.open(network).proxies[:, 0].tolist() == [0, 0, 1, 1, 1]


# VSE++ on images, with DataParallel around the ResNet.
WORDS = [*vocabulary.SPECIAL, "a", "cat", "dog"]


@pytest.mark.parametrize("prefix", ["cnn.module.", "cnn."])
def test_vsepp_encodes_images(tmp_path, prefix):
    state = fill(resnet())
    image = {f"{prefix}{name}": value for name, value in state.items()}
    image |= fixtures.state_dict({"fc.weight": (6, 40), "fc.bias": (6,)}, seed=6)
    text = {f"rnn.{name}": value.detach() for name, value in torch.nn.GRU(4, 6).state_dict().items()}
    text["embed.weight"] = torch.randn(len(WORDS), 4)
    opt = argparse.Namespace(data_name="coco", margin=0.2, max_violation=True, measure="cosine")
    path = save(tmp_path / "model_best.pth.tar", {"epoch": 1, "model": [image, text], "opt": opt})
    (tmp_path / "coco_vocab.json").write_text(json.dumps({word: number for number, word in enumerate(WORDS)}))
    checkpoint = cocos.open(path)
    assert vsepp.sniff(File(path)) and checkpoint.model.kinds == ("image", "text")
    pixels = Preparation()(IMAGES[:1]).double().numpy()
    unit = vision.unit(vision.resnet(pixels, in_float64(state)))
    expected = vision.unit(vision.linear(unit, in_float64(image), "fc"))
    np.testing.assert_allclose(checkpoint.model.encode(IMAGES[:1], "image", "query"), expected, atol=2e-5)


# Preparation of images.


@pytest.mark.parametrize(("before", "after"), [((40, 30), (16, 16)), ((9, 13), (20, 20)), ((28, 28), (256, 256))])
def test_resizing_is_the_triangle_filter(before, after):
    image = torch.randint(0, 256, (1, *before), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    resized = Preparation(after, None, (0.0,), (1 / 255,))([image])[0, 0]
    slow = vision.triangle(image[0].double().numpy(), after)
    assert abs(resized.numpy() - slow).max() < 1.01  # Pillow's weights are fixed-point numbers


def test_centre_is_cropped_and_normalised():
    image = torch.arange(6 * 9, dtype=torch.uint8).view(1, 6, 9).expand(3, -1, -1)
    prepare = Preparation(None, (4, 4), (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    for channel, (mean, std) in enumerate(zip(prepare.mean, prepare.std, strict=True)):
        expected = (image[0, 1:5, 2:6].numpy() / 255 - mean) / std
        np.testing.assert_allclose(prepare([image])[0][channel], expected, rtol=1e-5)
    padded = Preparation(None, (8, 4), (0.0,) * 3, (1.0,) * 3)([image])[0, 0]
    assert padded.shape == (8, 4) and not padded[0].any() and not padded[7].any()
    for wrong in (image.float(), image[0], image.expand(3, -1, -1)[:2]):
        with pytest.raises(InputError, match=r"expected \(3, height, width\)"):
            prepare([wrong])


# Folders of timm, with a stand-in for the library.
CONFIG = {"architecture": "tiny.in1k", "num_classes": 7}
CONFIG["pretrained_cfg"] = {"input_size": [3, 32, 48], "crop_pct": 0.8, "classifier": "head.fc"}


def test_timm_folder_is_built_by_timm(tmp_path, monkeypatch):
    save(tmp_path / "pytorch_model.bin", {"stem.weight": torch.full((4, 3), 2.0), "head.fc.weight": torch.ones(7, 4)})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"pip install 'cocos-metric\[vision\]'"):
        _ = cocos.open(tmp_path).model

    def create(name, pretrained, num_classes):
        assert (name, pretrained, num_classes) == ("tiny", False, 0)
        return torch.nn.Sequential(OrderedDict(stem=torch.nn.Linear(3, 4, bias=False)))

    library = types.SimpleNamespace(is_model="tiny".__eq__, create_model=create)
    monkeypatch.setitem(sys.modules, "timm", library)
    model = cocos.open(tmp_path).model
    assert timm.sniff(File(tmp_path)) and model.network(torch.ones(1, 3)).tolist() == [[6.0] * 4]
    assert model.preparation == Preparation(40, (32, 48), resampling="bicubic")
    for name in ("hf-hub:some/model", "local-dir:x", "large"):
        (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"architecture": name}))
        with pytest.raises(InputError, match="unknown to timm"):
            _ = cocos.open(tmp_path).model
