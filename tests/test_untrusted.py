"""Text, names and tensors of untrusted files."""

import json
import struct

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from cocos.base import tensor_files
from cocos.checkpoints import inventory
from cocos.checkpoints.files import file as files
from cocos.cli import app


def opened(path):
    """What `cocos inspect` says, and its exit code."""
    done = CliRunner().invoke(app, ["inspect", str(path)])
    assert done.exception is None or type(done.exception) is SystemExit, done.exception
    assert done.exit_code == 0 or done.stderr.count("\n") == 1
    return done


def sentence_folder(path, **files_beside):
    """A folder that begins as one of sentence-transformers does, which is enough for its side files to be read."""
    path.mkdir()
    held = {
        "modules.json": [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}],
        "config.json": {"model_type": "bert"},
        "tokenizer.json": {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
    }
    for name, content in (held | files_beside).items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    safetensors.torch.save_file({"embedding.weight": torch.ones(1, 4)}, path / "model.safetensors")
    return path


def test_a_loss_at_the_end_of_a_long_head_of_a_card_is_found(tmp_path):
    pytest.importorskip("tokenizers")
    card = b"- tag\n" * 10_000 + b"- loss:MultipleNegativesRankingLoss\n" + b"x" * 2**22
    assert "MultipleNegativesRankingLoss" in opened(sentence_folder(tmp_path / "m", **{"README.md": card})).stdout


ROLES = {
    "class weights": (
        *("loss.W", "criterion.losses.a.W", "losses.0.W", "closs.W", "head.weight", "a.cls.b.weight", "arc.0.weight"),
        "fc_out.weight",
    ),
    "centers": ("m.metric_loss.fc",),
    "proxies": ("proxies", "loss.proxies.weight", "my_proxy", "class_centers"),
    None: ("glue.W", "loss.x.W", "approximate", "recenter", "head_weight", "overhead.weight"),
}


@pytest.mark.parametrize(("name", "what"), [(name, what) for what, names in ROLES.items() for name in names])
def test_names_mean_what_they_meant(name, what):
    found = inventory.role(name, (20, 4), "float32")
    assert (found and found[0]) == what


DTYPES = [
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2),
]


def every_dtype():
    found = {f"t{k}": torch.arange(6).reshape(2, 3).float().to(dtype) for k, dtype in enumerate(DTYPES)}
    return found | {"one": torch.tensor(2.5), "none": torch.zeros(0, 4), "empty": torch.zeros(3, 0).bfloat16()}


def raw(tensor):
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy())


def test_tensors_are_those_of_the_library_in_the_order_of_their_bytes(tmp_path):
    path, right = tmp_path / "a.safetensors", every_dtype()
    safetensors.torch.save_file(right, path, {"about": "x"})
    file = files.File(path)
    found = file.content
    assert found.keys() == right.keys() and file.metadata == {"about": "x"}
    for name, tensor in right.items():
        assert (
            found[name].dtype == tensor.dtype and found[name].shape == tensor.shape and raw(found[name]) == raw(tensor)
        )
    with safetensors.safe_open(path, "pt") as other:
        assert list(found) == list(other.offset_keys())


def test_damaged_headers_are_refused_where_the_library_refuses_them(tmp_path):
    import io
    import random

    draw, whole = random.Random(3), safetensors.torch.save(every_dtype(), {"a": "b"})
    length, opened_by = struct.unpack("<Q", whole[:8])[0], {(True, True): 0, (False, False): 0}
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 2])):
            damaged[draw.randrange(8 + length)] = draw.choice(b'0123456789[]{}",:ABFIU a\xff')
        given, reads = bytes(damaged), []
        for read in (lambda b: tensor_files.tensors(io.BytesIO(b), len(b)), safetensors.torch.load):
            try:
                read(given)
                reads.append(True)
            except (ValueError, KeyError, safetensors.SafetensorError):
                reads.append(False)
        opened_by[tuple(reads)] += 1  # a KeyError where they do not agree
    assert min(opened_by.values()) > 10
