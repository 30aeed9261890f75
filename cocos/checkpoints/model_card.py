"""Model cards: the loss, scale and batch size that the folder of a Hugging Face model records of its training."""

import json
import re
from pathlib import Path
from typing import Any

from cocos.checkpoints.recorded import RANGES, Recorded

MAX_CARD = 2**16  # characters of a model card that are read; its training is described in the first thousands
RANKING = re.compile(r"(Cached)?MultipleNegatives(Symmetric)?RankingLoss")
RANKING_SCALE = 20.0  # default of sentence-transformers
CARD_LOSS = re.compile(r"(?:<code>|losses\.(?:\w+\.)?|^[ \t]*-[ \t]*loss:|\"loss\":[ \t]*\")(\w+Loss)\b", re.MULTILINE)
CARD_SCALE = re.compile(r"[\"']scale[\"']\s*:\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)")
BLOCK_END = re.compile(r"^#|^\*\s|^- ", re.MULTILINE)
# Hyper-parameters of a trainer's card, or the data loader of an older card.
CARD_BATCH_SIZE = re.compile(r"per_device_train_batch_size`?\s*[:=]\s*(\d+)|DataLoader[^#]*?'batch_size':\s*(\d+)")
PAIRS_SCRIPT = (
    "data_config.json lists training pairs like the script of sentence-transformers for a billion pairs: multiple "
    f"negatives ranking, scale {RANKING_SCALE:g}, the default of that script"
)


def read_folder(folder: Path) -> Recorded:
    """Read the training of a Hugging Face folder from its model card, `trainer_state.json` and `data_config.json`.

    A scale counts only within the block of its own loss: from the name of the loss to the next name or heading.
    """
    card = model_card(folder)
    size = CARD_BATCH_SIZE.search(card)
    batch_size = int(size[1] or size[2]) if size else trainer_state(folder).get("train_batch_size")
    batch_size = batch_size if type(batch_size) is int and batch_size > 1 else None
    names, rankings = list(CARD_LOSS.finditer(card)), []
    for match, end in zip(names, [*(name.start() for name in names[1:]), len(card)], strict=False):
        block = BLOCK_END.split(card[match.end() : end], maxsplit=1)[0]
        if RANKING.fullmatch(match[1]):
            rankings.append((match[1], CARD_SCALE.search(block), "doc_to_query" in block))
    if rankings:
        # The header of a card lists the loss without its parameters, which follow later.
        name, scale, both = next((ranking for ranking in rankings if ranking[1]), rankings[-1])
        both |= "Symmetric" in name
        value = float(scale[1]) if scale else RANKING_SCALE
        origin = "recorded in its model card" if scale else "default of the loss, which its model card does not change"
        scales = dict.fromkeys(float(match[1]) for _, match, _ in rankings if match)
        notes = [f"{name}, scale {value:g} ({origin})"]
        notes += [
            f"scale {value:g} is used, not {other:g}, also in its model card" for other in scales if other != value
        ]
        notes += [] if both else [f"{name} trains only q2c: c2q is not counted for ntxent"]
        source = "its model card"
    elif (folder / "data_config.json").is_file() and not names:
        value, both, source, notes = RANKING_SCALE, True, "the script of its data_config.json", [PAIRS_SCRIPT]
    else:
        return Recorded(batch_size=batch_size)
    if not RANGES["scale"][0] <= value <= RANGES["scale"][1]:
        return Recorded(batch_size=batch_size, notes=(f"scale {value:g} of its model card is not used",))
    parameters = {"ntxent": {"temperature": 1 / value}}
    return Recorded("ntxent", parameters, (), tuple(notes), batch_size, not both, source)


def trainer_state(folder: Path) -> dict[str, Any]:
    """Return `trainer_state.json` of the Hugging Face trainer; empty if absent or damaged."""
    try:
        state = json.loads((folder / "trainer_state.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def model_card(folder: Path) -> str:
    """Return the beginning of the model card; empty if absent."""
    path = folder / "README.md"
    return path.read_text("utf-8", "replace")[:MAX_CARD] if path.is_file() else ""
