"""Parts of a folder of Hugging Face that text encoders share: configuration, tokenizer, and what its training was."""

import re
from dataclasses import dataclass
from typing import Any

from cocos.base.errors import InputError
from cocos.checkpoints._inventory import MAX_TRAINER_STATE, TRAINER_STATE
from cocos.checkpoints.encoders._tokenizer import FILES
from cocos.checkpoints.encoders._transformers import REFUSED, TEXT_MODELS
from cocos.checkpoints.files import Folder

ADAPTER = "adapter_config.json"  # of a folder of PEFT

__all__ = ["configuration", "longest_text", "padding", "tokenizer_files", "trained", "width"]

# Largest tokenizer in bytes: the largest vocabularies need 35 million. Its settings need a million at most.
MAX_TOKENIZER = 3 * 2**24
# Bytes of a model card that are read: its lists of losses stand near its beginning, in the head or after the examples.
MAX_CARD = 2**16
NO_LIMIT = 10**9  # tokens; folders write 1e30 where a tokenizer has no limit
OFFSET_MODELS = frozenset({
    "camembert",
    "mpnet",
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
})  # skip positions to padding
# Losses of sentence-transformers that are NT-Xent at a scale, with the scale they have unless told otherwise.
RANKING = re.compile(r"(Cached)?MultipleNegatives(Symmetric)?RankingLoss")
RANKING_SCALE = 20.0
NAMED_LOSS = re.compile(
    r"(?:<code>|losses\.(?:\w++\.)?|^[ \t]*-[ \t]*loss:|\"loss\":[ \t]*\")(\w+Loss)\b", re.MULTILINE
)
RECORDED_SCALE = re.compile(r"[\"']scale[\"']\s*:\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)")


def configuration(folder: Folder, within: str = "") -> dict[str, Any]:
    """Read the configuration of a model.

    Args:
        folder: with a `config.json`.
        within: folder inside of it.
    """
    _refuse_adapter(folder, within)
    if f"{within}config.json" not in folder:
        raise InputError(f"{folder.path / within} has no config.json; copy all files of the model")
    found = folder.json(f"{within}config.json")
    if not isinstance(found, dict):
        raise InputError(f"{folder.path / within}config.json is no dictionary")
    for key, reason in REFUSED.items():
        if found.get(key):
            raise InputError(f"{folder.path / within / 'config.json'} has {key} {str(found[key])[:80]}: {reason}")
    return found


def _refuse_adapter(folder: Folder, within: str) -> None:
    """Refuse an adapter of PEFT, which is a change of a model and no model."""
    model = any(name.startswith((f"{within}model", f"{within}pytorch_model")) for name in folder.names)
    if f"{within}{ADAPTER}" not in folder or model:
        return
    about = folder.json(f"{within}{ADAPTER}")
    base = about.get("base_model_name_or_path") if isinstance(about, dict) else None
    raise InputError(
        f"{folder.path} holds an adapter of PEFT, a change of {str(base)[:100]} and no model: merge them, "
        "model = PeftModel.from_pretrained(BASE, FOLDER).merge_and_unload(); model.save_pretrained(NEW), and save "
        "the tokenizer beside it, tokenizer.save_pretrained(NEW); then name NEW"
    )


def text_model(folder: Folder, within: str = "") -> dict[str, Any]:
    """Read the configuration of a text encoder.

    Args:
        folder: with a `config.json`.
        within: folder inside of it.
    """
    found = configuration(folder, within)
    if (name := found.get("model_type")) not in TEXT_MODELS:
        raise InputError(
            f"{folder.path / within / 'config.json'} has model_type {name!r}, expected one of "
            f"{', '.join(sorted(TEXT_MODELS))}; encode it with a function of your own (--model file.py:function)"
        )
    return found


def tokenizer_files(folder: Folder, within: str = "") -> dict[str, Any]:
    """Read the files of a tokenizer.

    Args:
        folder: of the model.
        within: folder inside of it.
    """
    for first, others in FILES.items():
        if f"{within}{first}" in folder and (first != "vocab.json" or f"{within}merges.txt" in folder):
            found: dict[str, Any] = {first: folder.text(f"{within}{first}", MAX_TOKENIZER)}
            for name in others:
                if f"{within}{name}" in folder:
                    text = not name.endswith(".json")
                    found[name] = folder.text(f"{within}{name}", MAX_TOKENIZER) if text else folder.json(within + name)
            return found
    raise InputError(
        f"{folder.path / within} has no tokenizer.json, vocab.txt, or vocab.json with merges.txt; write one: "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )


def longest_text(config: dict, files: dict, told: Any = None) -> int | None:
    """Tokens that a text is cut to: what the folder says, within the positions of the model; None for no limit.

    Args:
        config: of the model.
        files: of its tokenizer.
        told: by the folder itself.
    """
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    positions = positions if isinstance(positions, int) and positions > 0 else None
    if positions is not None and config.get("model_type") in OFFSET_MODELS:
        positions -= config.get("pad_token_id", 1) + 1
    if told is None:
        told = (files.get("tokenizer_config.json") or {}).get("model_max_length")
    if told is not None and (not isinstance(told, int | float) or told < 1):
        raise InputError(f"longest text: {str(told)[:40]} tokens, expected a whole number above 0")
    limits = [int(each) for each in (told, positions) if each is not None and each < NO_LIMIT]
    return min(limits, default=None)


def padding(config: dict) -> int:
    """Id of the token that short texts are filled up with; no vector depends on it."""
    found = config.get("pad_token_id")
    return found if isinstance(found, int) and 0 <= found else 0


def width(config: dict) -> int | None:
    """Numbers in the vector of a token; None where the configuration does not say."""
    return next((config[key] for key in ("hidden_size", "dim", "d_model", "n_embd") if key in config), None)


@dataclass(frozen=True)
class Trained:
    """What a folder says of its training.

    Args:
        loss: `recorded`, `trained_with` and `recorder` of its checkpoint; empty where nothing is known of the loss.
        more: what else it says, for `contents`.
        notes: how the loss was found.
    """

    loss: dict[str, Any]
    more: dict[str, Any]
    notes: tuple[str, ...] = ()


def _ranking(scale: float, recorder: str) -> dict[str, Any]:
    """Multiple negatives ranking at a scale, which is NT-Xent."""
    return {"recorded": {"ntxent": {"temperature": 1 / scale}}, "trained_with": "ntxent", "recorder": recorder}


def trained(folder: Folder) -> Trained:
    """Find out from texts of a folder which loss trained it.

    Args:
        folder: whose model card (`README.md`), `data_config.json` and `trainer_state.json` are read.
    """
    more: dict[str, Any] = {}
    if TRAINER_STATE in folder:
        state = folder.json(TRAINER_STATE, MAX_TRAINER_STATE)
        keys = ("epoch", "global_step", "best_metric") if isinstance(state, dict) else ()
        more |= {key.replace("_", " "): state[key] for key in keys if state.get(key) is not None}
    card = folder.head("README.md", MAX_CARD).decode("utf-8", "replace") if "README.md" in folder else ""
    named = list(dict.fromkeys(NAMED_LOSS.findall(card)))
    if named:
        more["training loss"] = ", ".join(named)
    for name in named:
        if RANKING.fullmatch(name):
            found = RECORDED_SCALE.search(card)
            scale = float(found[1]) if found else RANKING_SCALE
            origin = "as its model card says" if found else "the default, which its model card does not change"
            if not 0 < scale < float("inf"):
                break
            return Trained(_ranking(scale, "its model card"), more, (f"{name}, scale {scale:g}, {origin}",))
    if "data_config.json" in folder and not named:
        note = (
            f"data_config.json lists training pairs as the script for a billion pairs of sentence-transformers does: "
            f"multiple negatives ranking, scale {RANKING_SCALE:g}, the default of that script"
        )
        return Trained(_ranking(RANKING_SCALE, "the script of its data_config.json"), more, (note,))
    return Trained({}, more)
