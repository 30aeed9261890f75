"""One valid file, or folder, of each format that cocos reads; small, so that thousands can be opened."""

import argparse
import io
import json
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

__all__ = [
    "NAMESPACE",
    "arrays",
    "content",
    "folder",
    "labelled",
    "npz",
    "safe",
    "saved",
    "vocabulary",
    "vocabulary_file",
    "write",
]

NAMESPACE = argparse.Namespace
WORDS = ("<pad>", "<start>", "<end>", "<unk>", "a", "dog", "and", "man", ".")
WIDTH, FEATURES, WORD = 4, 3, 2


def _rows(random, rows: int, width: int = WIDTH) -> np.ndarray:
    return np.array([[random.gauss(0, 1) for _ in range(width)] for _ in range(rows)], dtype=np.float32)


def arrays(random) -> dict[str, np.ndarray]:
    """Two sides, with most of the names that such a file can have."""
    sides = {"query": _rows(random, 6), "candidate": _rows(random, 6)}
    if random.random() < 0.7:
        sides |= {"query_group": np.arange(6) // 2, "candidate_group": np.arange(6) // 2}
        if random.random() < 0.3:
            sides = {k: v.astype("U2") if k.endswith("group") else v for k, v in sides.items()}
    if random.random() < 0.3:
        sides["directions"] = np.array(["i2t", "t2i"])
    if random.random() < 0.3:
        sides["negatives"] = np.array([[random.randrange(-1, 6)] for _ in range(6)])
    for name in ("query_name", "candidate_name"):
        if random.random() < 0.2:
            sides[name] = np.array([f"row {i}" for i in range(6)])
    for name in ("query_image", "candidate_image"):
        if random.random() < 0.1:
            sides[name] = np.zeros((6, 2, 2, 3), dtype=np.uint8)
    return sides


def labelled(random) -> dict[str, np.ndarray]:
    """A labelled set, with or without proxies."""
    found = {"embeddings": _rows(random, 8), "labels": np.arange(8) // 2}
    if random.random() < 0.6:
        found["proxies"] = _rows(random, 4)
        if random.random() < 0.5:
            found["proxy_labels"] = np.arange(4)
        if random.random() < 0.3:
            found["proxy_variance"] = abs(_rows(random, 4)) + 1
    return found


def npz(values: dict, deflated: bool) -> bytes:
    """An npz file."""
    stream = io.BytesIO()
    (np.savez_compressed if deflated else np.savez)(stream, **values)
    return stream.getvalue()


def safe(values: dict, metadata: dict | None = None) -> bytes:
    """A safetensors file of those arrays that are numbers."""
    numbers = {k: torch.from_numpy(v.copy()) for k, v in values.items() if v.dtype.kind in "fiu"}
    return safetensors.torch.save(numbers, metadata)


def saved(value, legacy: bool = False) -> bytes:
    """What `torch.save` writes, or wrote before version 1.6."""
    stream = io.BytesIO()
    if legacy:
        _Legacy(stream).save(value)
    else:
        torch.save(value, stream)
    return stream.getvalue()


class _Legacy(pickle.Pickler):
    """The old container; torch's own writer names storages by their addresses, so that no two files are equal."""

    def __init__(self, stream: io.BytesIO):
        super().__init__(stream, protocol=2)
        self.stream, self.numbers, self.storages = stream, {}, []

    def persistent_id(self, value):
        """Storages stand behind the pickle."""
        if not torch.is_storage(value):
            return None
        typed = isinstance(value, torch.storage.TypedStorage)
        bare = value._untyped_storage if typed else value
        kind = getattr(torch, value._pickle_storage_type()) if typed else torch.UntypedStorage
        number = self.numbers.setdefault(bare._cdata, len(self.storages))
        if number == len(self.storages):
            self.storages.append((bare, value._element_size() if typed else 1))
        return "storage", kind, str(number), "cpu", len(value), None

    def save(self, value) -> None:
        """Write the five pickles and the storages."""
        for part in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}):
            self.stream.write(pickle.dumps(part, protocol=2))
        self.dump(value)
        self.stream.write(pickle.dumps([str(number) for number in range(len(self.storages))], protocol=2))
        for bare, width in self.storages:
            bare._write_file(self.stream, False, True, width)


def _text_tower(random) -> dict:
    return {
        "embed.weight": torch.randn(len(WORDS), WORD),
        "rnn.weight_ih_l0": torch.randn(3 * WIDTH, WORD),
        "rnn.weight_hh_l0": torch.randn(3 * WIDTH, WIDTH),
        "rnn.bias_ih_l0": torch.randn(3 * WIDTH),
        "rnn.bias_hh_l0": torch.randn(3 * WIDTH),
    }


def _options(random) -> dict:
    return {
        "margin": 0.2,
        "measure": "cosine",
        "data_name": random.choice(["data", "f30k_precomp"]),
        "data_path": "/nowhere",
        "vocab_path": "./vocab",
        "max_violation": True,
        "use_abs": False,
        "no_imgnorm": False,
        "vocab_size": len(WORDS),
        "criterion": random.choice(["triplet", "ntxent", "ranking"]),
        "tau": 0.1,
    }


def _towers(random, image: dict) -> dict:
    return {
        "epoch": 3,
        "best_rsum": 400.5,
        "Eiters": 1000,
        "opt": argparse.Namespace(**_options(random)),
        "model": [OrderedDict(image), OrderedDict(_text_tower(random))],
    }


def content(kind: str, random) -> dict:
    """What a torch file holds: `native`, `vsepp`, `vsrn`, or embeddings."""
    first = {"fc.weight": torch.randn(WIDTH, FEATURES), "fc.bias": torch.randn(WIDTH)}
    if kind == "vsepp":
        return _towers(random, first)
    if kind == "vsrn":
        graph = {}
        for layer in range(1, 5):
            for part in ("g", "theta", "phi", "W.0"):
                graph[f"Rs_GCN_{layer}.{part}.weight"] = torch.randn(WIDTH, WIDTH, 1) / 8
                graph[f"Rs_GCN_{layer}.{part}.bias"] = torch.randn(WIDTH)
            for part in ("weight", "bias", "running_mean", "running_var"):
                graph[f"Rs_GCN_{layer}.W.1.{part}"] = torch.rand(WIDTH) + 0.5
            graph[f"Rs_GCN_{layer}.W.1.num_batches_tracked"] = torch.tensor(5)
        for part, width in (("ih", WIDTH), ("hh", WIDTH)):
            graph[f"img_rnn.weight_{part}_l0"] = torch.randn(3 * WIDTH, width)
            graph[f"img_rnn.bias_{part}_l0"] = torch.randn(3 * WIDTH)
        return _towers(random, first | graph)
    if kind == "native":
        arguments = {"vocabulary": dict(vocabulary()), "img_dim": FEATURES, "embed_size": WIDTH, "word_dim": WORD}
        state = {f"image.{k}": v for k, v in first.items()} | {f"text.{k}": v for k, v in _text_tower(random).items()}
        record = {
            "schema": 1,
            "encoder": {"name": "vsepp", "arguments": arguments | {"num_layers": 1}},
            "loss": {"name": "ntxent", "parameters": {"temperature": 0.1}},
            "data": {"name": "precomp", "arguments": {"folder": "data"}},
            "training": {"epoch": 3, "seed": 0, "curve": [0.5, 0.25]},
        }
        return {"cocos": record, "state": state}
    values = arrays(random) if kind == "sides" else labelled(random)
    if random.random() < 0.5:
        return {k: torch.from_numpy(v.copy()) if v.dtype.kind in "fi" else v.tolist() for k, v in values.items()}
    return dict(values)


def vocabulary() -> dict[str, int]:
    """Words and their ids."""
    return {word: number for number, word in enumerate(WORDS)}


def vocabulary_file(suffix: str) -> bytes:
    """A vocabulary as JSON, or as the training code pickles it."""
    if suffix == ".json":
        return json.dumps({"word2idx": vocabulary()}).encode()
    body = pickle.dumps({"word2idx": vocabulary()}, protocol=2)[2:-1]
    return b"\x80\x02cvocab\nVocabulary\n)\x81" + body + b"b."


def folder(random, regions: bool) -> dict[str, bytes]:
    """Files of the folder beside a checkpoint: features, captions, vocabulary."""
    stream = io.BytesIO()
    shape = (4, 2, FEATURES) if regions else (4, FEATURES)
    np.save(stream, np.array([random.gauss(0, 1) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape))
    suffix = random.choice([".json", ".pkl"])
    words = vocabulary_file(suffix)
    captions = "\n".join(random.choice(["a dog .", "a man and a dog", "dog and dog"]) for _ in range(8))
    return {
        "train_ims.npy": stream.getvalue(),
        "train_caps.txt": captions.encode(),
        f"data_vocab{suffix}": words,
        f"f30k_precomp_vocab{suffix}": words,
    }


def write(path: Path, files: dict[str, bytes]) -> None:
    """Write the files of a folder."""
    path.mkdir(exist_ok=True)
    for name, payload in files.items():
        (path / name).write_bytes(payload)
