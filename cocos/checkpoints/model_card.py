"""Model cards: the loss, scale and batch size that the folder of a Hugging Face model records of its training."""

import json
import re
from pathlib import Path
from typing import Any

from cocos.checkpoints.recorded import SCALES, Recorded

MAX_CARD = 2**16  # characters of a model card that are read; its training is described in the first thousands
RANKING = re.compile(r"(Cached)?MultipleNegatives(Symmetric)?RankingLoss")
RANKING_SCALE = 20.0  # default of sentence-transformers
CARD_LOSS = re.compile(r"(?:<code>|losses\.(?:\w+\.)?|^[ \t]*-[ \t]*loss:|\"loss\":[ \t]*\")(\w+Loss)\b", re.MULTILINE)
CARD_SCALE = re.compile(r"[\"']scale[\"']\s*:\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)")
BLOCK_END = re.compile(r"^#|^\*\s|^- ", re.MULTILINE)
# Hyper-parameters of a trainer's card, or the data loader of an older card.
CARD_BATCH_SIZE = re.compile(r"per_device_train_batch_size`?\s*[:=]\s*(\d+)|DataLoader[^#]*?'batch_size':\s*(\d+)")


def read_folder(folder: Path) -> Recorded:
    """Read the training of a Hugging Face folder from its model card, `trainer_state.json` and `data_config.json`.

    A scale counts only within the block of its own loss: from the name of the loss to the next name or heading.
    """
    card = model_card(folder)
    size = CARD_BATCH_SIZE.search(card)
    batch_size = int(size[1] or size[2]) if size else trainer_state(folder).get("train_batch_size")
    batch_size = batch_size if type(batch_size) is int and batch_size > 1 else None
    loss_names = list(CARD_LOSS.finditer(card))
    rankings = []
    for match, end in zip(loss_names, [*(name.start() for name in loss_names[1:]), len(card)], strict=False):
        block = BLOCK_END.split(card[match.end() : end], maxsplit=1)[0]
        if RANKING.fullmatch(match[1]):
            rankings.append((match[1], CARD_SCALE.search(block), "doc_to_query" in block))
    source, notes = "its model card", []
    if rankings:
        # The header of a card lists the loss without its parameters, which follow later.
        name, scale, both = next((ranking for ranking in rankings if ranking[1]), rankings[-1])
        both |= "Symmetric" in name
        value = float(scale[1]) if scale else RANKING_SCALE
        origin = "recorded in its model card" if scale else "default of the loss, which its model card does not change"
        notes.append(f"{name}, scale {value:g} ({origin})")
        scales = list(dict.fromkeys(float(match[1]) for _, match, _ in rankings if match))
        notes += [f"scale {value:g} is used, not {number:g}, also in its model card" for number in scales[1:]]
        notes += [] if both else [f"{name} trains only q2c: c2q is not counted for ntxent"]
    elif (folder / "data_config.json").is_file() and not loss_names:
        value, both, source = RANKING_SCALE, True, "the script of its data_config.json"
        notes.append(
            f"data_config.json lists training pairs like the script of sentence-transformers for a billion pairs: "
            f"multiple negatives ranking, scale {value:g}, the default of that script"
        )
    else:
        return Recorded(batch_size=batch_size, source=source)
    if not SCALES[0] <= value <= SCALES[1]:
        return Recorded(batch_size=batch_size, source=source, notes=(f"scale {value:g} of its model card is not used",))
    parameters = {"ntxent": {"temperature": 1 / value}}
    return Recorded("ntxent", parameters, (), tuple(notes), batch_size, not both, source)


def trainer_state(folder: Path) -> dict[str, Any]:
    """Return `trainer_state.json` of the Hugging Face trainer; empty if absent or damaged."""
    try:
        state = json.loads((folder / "trainer_state.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def describe_training(folder: Path) -> dict[str, Any]:
    """Return the progress of a training and the names of its losses, for `cocos inspect`."""
    state = trainer_state(folder)
    keys = ("epoch", "global_step", "best_metric")
    progress = {key.replace("_", " "): state[key] for key in keys if state.get(key) is not None}
    loss_names = dict.fromkeys(match[1] for match in CARD_LOSS.finditer(model_card(folder)))
    return progress | ({"training loss": ", ".join(loss_names)} if loss_names else {})


def model_card(folder: Path) -> str:
    """Return the beginning of the model card; empty if absent."""
    path = folder / "README.md"
    return path.read_text("utf-8", "replace")[:MAX_CARD] if path.is_file() else ""
