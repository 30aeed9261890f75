"""Common parts of the VSE++ and VSRN formats: two state dicts, and the data and vocabulary beside them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from cocos import encoders
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.files import NAMESPACES, File
from cocos.checkpoints.formats import _training
from cocos.checkpoints.formats._training import Training
from cocos.data import TrainingSet, precomp
from cocos.encoders import words
from cocos.errors import InputError

__all__ = ["arguments", "checkpoint", "towers"]

# Captions, from the first MiB, whose unknown words are counted when a checkpoint is opened.
CAPTIONS_SAMPLED = 1000


def towers(file: File) -> tuple[dict, dict] | None:
    """Find the state dicts of the image and the text tower; None unless the file has the published structure."""
    if not isinstance(file.record.get("opt"), NAMESPACES):
        return None
    model = file.record.get("model")
    if not isinstance(model, list | tuple) or [isinstance(part, dict) for part in model] != [True, True]:
        return None
    if not all(isinstance(k, str) and isinstance(v, Tensor) for part in model for k, v in part.items()):
        return None
    image, text = model
    need = [image.get("fc.weight"), text.get("embed.weight"), text.get("rnn.weight_ih_l0")]
    return (image, text) if all(part is not None and part.ndim == 2 for part in need) else None


def arguments(image: Mapping[str, Tensor], text: Mapping[str, Tensor], training: Training) -> dict:
    """Collect the arguments that both encoders have; sizes are those of the weights."""
    return {
        "img_dim": image["fc.weight"].shape[1],
        "embed_size": image["fc.weight"].shape[0],
        "word_dim": text["embed.weight"].shape[1],
        "num_layers": sum(key.startswith("rnn.weight_ih_l") and key[15:].isdigit() for key in text),
        "use_abs": training.switch("use_abs"),
        "no_imgnorm": training.switch("no_imgnorm"),
    }


def _folder(training: Training, data) -> Path:
    """Find the folder of the features: the one given, or the recorded one if it is on this machine.

    Raises:
        InputError: neither is there.
    """
    path, name = training.options.get("data_path"), training.options.get("data_name")
    if data is not None:
        inner = Path(data) / str(name or "")
        found = inner if precomp.splits(inner) else Path(data)
    else:
        found = Path(str(path or "")) / str(name or "")
        if path is None or not found.is_dir():
            where = f"its training read {found}, which is not here" if path else "it names none"
            raise InputError(f"data of {training.path}: {where}; name the folder with train_ims.npy: --data FOLDER")
    if not precomp.splits(found):
        reason = "has no train_ims.npy and train_caps.txt" if found.is_dir() else "does not exist"
        raise InputError(f"data of {training.path}: folder {found} {reason}; name the right one: --data FOLDER")
    return found


def _words(training: Training, folder: Path) -> dict[str, int]:
    """Read the vocabulary of the training from a file beside the data.

    Raises:
        InputError: no such file, or the vocabulary of other data.
    """
    name, recorded = str(training.options.get("data_name") or folder.name), training.options.get("vocab_path")
    places = [folder, folder.parent, folder / "vocab", folder.parent / "vocab"]
    places += [Path(recorded)] if isinstance(recorded, str) else []
    for place in places:
        for suffix in (".pkl", ".json"):
            if (path := place / f"{name}_vocab{suffix}").is_file():
                return words.read_vocabulary(path, training.rows)
    raise InputError(
        f"{training.path} does not hold its vocabulary, and there is no {name}_vocab.pkl or "
        f"{name}_vocab.json in {', '.join(map(str, places))}; copy the vocabulary of its training "
        f"({training.rows} words) into {folder}"
    )


def _beside(training: Training, data) -> dict | str:
    """Describe the data beside the checkpoint, its splits and the words that the vocabulary lacks; or say why not."""
    try:
        folder = _folder(training, data)
        split = precomp.splits(folder)[0]
        with open(folder / f"{split}_caps.txt", encoding="utf-8") as stream:
            lines = stream.read(2**20).splitlines()[:CAPTIONS_SAMPLED]
        strange, every = words.unknown(lines, _words(training, folder))
    except (InputError, OSError, UnicodeDecodeError) as error:
        return str(error)
    return {
        "folder": str(folder),
        "splits": ", ".join(precomp.splits(folder)),
        "unknown words": f"{strange} of the first {every} in the captions of {split}",
    }


def _embedder(training: Training, data, build: Callable, state: dict) -> Callable:
    def embedder(split, device, progress):
        if (reason := training.refusal()) is not None:
            raise InputError(reason)
        folder = _folder(training, data)
        items = precomp.load(split, folder)
        vocabulary = _words(training, folder)
        strange, every = words.unknown(items.candidate.items, vocabulary)
        if 2 * strange > every:
            raise InputError(
                f"{strange} of {every} words of the captions in {folder}, {split}, are not in the "
                f"vocabulary for {training.path}: it belongs to other data, or the captions are in another "
                "language"
            )
        model = encoders.freeze(build(vocabulary), state)
        return encoders.embed(lambda: model, items, device=device, progress=progress)

    return embedder


def checkpoint(file: File, data, *, format: str, image_tower: str, build: Callable) -> Checkpoint:
    """Make a checkpoint of two towers; the model is built when it embeds, since its vocabulary is not in the file.

    It refuses to embed when more than half of the words of the captions are not in the vocabulary;
    `contents` says how many are not, in the first thousand captions.

    Args:
        file: the file.
        data: folder of the data, instead of the one recorded.
        format: its name on the shelf.
        image_tower: description of the image tower.
        build: (training, vocabulary) -> the model of the shelf of encoders.
    """
    image, text = towers(file)
    raw = any(key.startswith("cnn.") for key in image)
    training = _training.read(file.path, file.record, rows=len(text["embed.weight"]), raw=raw)
    both = (("image", image), ("text", text))
    refusal, (width, features) = training.refusal(), image["fc.weight"].shape
    beside = _beside(training, data) if refusal is None else refusal
    size = {side: sum(map(torch.numel, tower.values())) for side, tower in both}
    reads = f"raw images through {training.options.get('cnn_type')}" if raw else f"features of {features}"
    word_width = text["embed.weight"].shape[1]
    contents = {
        **training.progress,
        "training loss": training.in_words(),
        "scores": training.scores(),
        "image tower": f"{image_tower}: {reads} -> {width}, {size['image']} numbers",
        "text tower": f"{training.rows} words of {word_width}, GRU -> {width}, {size['text']} numbers",
        "data": beside,
        "not recorded": ", ".join(training.missing()) or "nothing missing",
        "opt": training.options,
    }
    state = {f"{side}.{key}": value for side, tower in both for key, value in tower.items()}

    def rows(split: str) -> TrainingSet | None:
        return precomp.load(split, Path(beside["folder"])) if isinstance(beside, dict) else None

    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format=format,
        contents=contents,
        embedder=_embedder(training, data, lambda vocabulary: build(training, vocabulary), state),
        rows=rows,
        splits=precomp.splits(_folder(training, data)) if isinstance(beside, dict) else (),
        recorded=training.recorded(),
        trained_with=training.loss[0],
    )
