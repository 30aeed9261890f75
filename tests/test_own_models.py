"""A model of the user's on the command line: where it may live, what it may need, and what it raises."""

import numpy as np
import pytest
import torch
from PIL import Image

import cocos
from cocos.base.errors import InputError


@pytest.fixture
def pictures(tmp_path):
    """A folder of images by class, of different sizes; one is white."""
    for place, (name, size) in enumerate((("a/0", (40, 30)), ("a/1", (9, 21)), ("b/0", (300, 500)), ("b/1", (8, 8)))):
        path = tmp_path / "pets" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (255, 255, 255) if not place else (51 * place, 0, 255)).save(path)
    return tmp_path / "pets"


def test_an_encoder_gets_images_of_one_size_from_zero_to_one(pictures):
    """Of files: (n, 3, 224, 224) of float32, whatever their sizes; its attribute says otherwise."""
    got = []

    def encoder(images):
        got.append(images)
        return images.flatten(1)[:, ::7]

    cocos.open(pictures, model=encoder).embed(device="cpu")
    (found,) = got
    assert found.shape == (4, 3, 224, 224) and found.dtype == torch.float32
    assert torch.equal(found[0], torch.ones(3, 224, 224))
    assert torch.allclose(found[1, :, 0, 0], torch.tensor([51 / 255, 0.0, 1.0]))
    encoder.images = {"resize": [8, 6], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    cocos.open(pictures, model=encoder).embed(device="cpu")
    assert got[1].shape == (4, 3, 8, 6) and torch.allclose(got[1][1, :, 0, 0], torch.tensor([-0.6, -1.0, 1.0]))
    encoder.images = {"resize": 8}
    with pytest.raises(InputError, match="expected one; name a crop"):
        cocos.open(pictures, model=encoder).embed(device="cpu")


def test_images_in_arrays_stay_as_they_are_unless_they_are_to_be_prepared(tmp_path):
    images = np.full((4, 6, 6, 3), 255, np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=[0, 0, 1, 1])
    got = []

    def encoder(images):
        got.append(images)
        return images.flatten(1).float()

    cocos.open(tmp_path / "a.npz", model=encoder).embed(device="cpu")
    encoder.images = {"resize": [3, 3]}
    cocos.open(tmp_path / "a.npz", model=encoder).embed(device="cpu")
    assert [(each.dtype, tuple(each.shape)) for each in got] == [
        (torch.uint8, (4, 3, 6, 6)),
        (torch.float32, (4, 3, 3, 3)),
    ]


def test_a_tower_called_images_is_no_setting(pictures):
    class Towers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.images = torch.nn.Flatten()

        def forward(self, images):
            return self.images(images)

    assert cocos.open(pictures, model=Towers()).embed(device="cpu").query.shape == (4, 3 * 224 * 224)
