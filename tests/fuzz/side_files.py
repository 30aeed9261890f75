"""Folders of sentence encoders, and archives of them, with side files made to take time or memory."""

import functools
import io
import json
import random as randomness
import struct
import zipfile
from pathlib import Path

from fuzz import models, trees

__all__ = ["hostile"]

# Files beside the weights that are read as text or JSON.
JSON = (
    *("special_tokens_map.json", "tokenizer_config.json", "trainer_state.json", "tokenizer.json", "config.json"),
    *("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json"),
    *("model.safetensors.index.json", "adapter_config.json", "data_config.json", "preprocessor_config.json"),
)
TEXT = ("README.md", "params.txt", "vocab.txt", "merges.txt", "cocos.toml")
# Pieces that patterns over text and names begin to match again and again.
PIECES = (
    *(
        "\n",
        " ",
        "\t",
        "- loss:",
        "\n - loss:",
        "losses.",
        "losses.a",
        "<code>",
        '"loss": "',
        '"scale"',
        "Loss",
        "a.",
        "_",
    ),
    *("loss", "_cls", "head", "prox", ".1", "module.", "rank_", "_rng_state", "step", "1", "running_mean", "(", "[["),
)
# Documents by the bytes of one piece and what closes them.
DOCUMENTS = (
    *(("[", "[],", "[]]"), ("[", "{},", "{}]"), ("[", '{"a":1},', "1]"), ("[", '"aa",', "1]"), ("[", "1e1,", "1]")),
    *(('{"a":', '{"a":', ""), ("", "[", ""), ("[", "[[[]]],", "1]"), ('{"model":[', "[],", "[]]}"), ('"', "é", '"')),
)


@functools.cache
def _seed(number: int) -> dict:
    """The files of a whole folder."""
    random = randomness.Random(number)
    files, _, _ = models.MODELS["sentence-transformers" if number % 2 else "static tables"](random)
    return {name: trees.serialised(random, name, content) for name, content in files.items()}


def _document(random, most: int) -> bytes:
    begin, piece, end = random.choice(DOCUMENTS)
    return (begin + piece * (random.choice([10, most // 10, most]) // len(piece)) + end).encode()


def _text(random, most: int) -> bytes:
    piece = "".join(random.choices(PIECES, k=random.choice([1, 1, 2, 3])))
    return (
        piece * (random.choice([most // 20, most]) // len(piece)) + random.choice(["", "x", ".W", ".weight"])
    ).encode()


def _names(random, most: int) -> bytes:
    """A safetensors file whose names are long, or many."""
    number = random.choice([1, 4, 400])
    length = random.choice([20, 900, most]) if number < 400 else random.choice([20, 160])
    held = {}
    for k in range(number):
        name = _text(random, length).decode()[:length] + random.choice(["", ".W", ".weight", ".fc", "proxies"]) + str(k)
        held[name] = {"dtype": "F32", "shape": [4, 4], "data_offsets": [64 * k, 64 * k + 64]}
    header = json.dumps(held).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64 * number)


def hostile(random, folder: Path) -> Path:
    """Write a folder, an archive of it, or a file of tensors beside it; what is opened."""
    archive = random.random() < 0.4
    most = random.choice([10**4, 10**5, 10**6, *([6 * 10**7] if archive and random.random() < 0.1 else [])])
    files = dict(_seed(random.randrange(8)))
    for _ in range(random.choice([1, 1, 2])):
        way = random.random()
        if way < 0.5:
            files[random.choice([*JSON, *(name for name in files if name.endswith(".json"))])] = _document(random, most)
        elif way < 0.8:
            files[random.choice(TEXT)] = _text(random, most)
        else:
            name = random.choice(["model.safetensors", "2_Dense/model.safetensors", "only.safetensors"])
            files[name] = _names(random, min(most, 10**6))
    if archive:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            for name, payload in files.items():
                packed.writestr(zipfile.ZipInfo(name), payload, zipfile.ZIP_DEFLATED)
        path = folder / "model.zip"
        path.write_bytes(stream.getvalue())
        return path
    for name, payload in files.items():
        (folder / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "model" / name).write_bytes(payload)
    return folder / "model" / random.choice(["", "", "", "only.safetensors"] if "only.safetensors" in files else [""])
