"""Model cards: the loss, scale and batch size that the folder of a Hugging Face model records of its training."""

import re
from pathlib import Path

from cocos.checkpoints.files import File
from cocos.checkpoints.recorded import RANGES, Recorded

MAX_CARD = 2**16  # characters of a model card that are read; its training is described in the first thousands
RANKING = re.compile(r"(Cached)?MultipleNegatives(Symmetric)?RankingLoss")
RANKING_SCALE = 20.0  # default of sentence-transformers
CARD_LOSS = re.compile(r"(?:<code>|losses\.(?:\w+\.)?|^[ \t]*-[ \t]*loss:|\"loss\":[ \t]*\")(\w+Loss)\b", re.MULTILINE)
CARD_SCALE = re.compile(r"[\"']scale[\"']\s*:\s*([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)")
BLOCK_END = re.compile(r"^#|^\*\s|^- ", re.MULTILINE)
# Hyper-parameters of a trainer's card, or the data loader of an older card.
CARD_BATCH_SIZE = re.compile(r"per_device_train_batch_size`?\s*[:=]\s*(\d+)|DataLoader[^#]*?'batch_size':\s*(\d+)")


def read_folder(folder: Path) -> Recorded:
    """Read the training of a Hugging Face folder from its model card and `trainer_state.json`.

    A scale counts only within the block of its own loss: from the name of the loss to the next name or heading.
    """
    path = folder / "README.md"
    card = path.read_text("utf-8", "replace")[:MAX_CARD] if path.is_file() else ""
    size = CARD_BATCH_SIZE.search(card)
    state = File(folder).json("trainer_state.json") or {}
    batch_size = int(size[1] or size[2]) if size else state.get("train_batch_size")
    batch_size = batch_size if type(batch_size) is int and batch_size > 1 else None
    names, rankings = list(CARD_LOSS.finditer(card)), []
    for match, end in zip(names, [*(name.start() for name in names[1:]), len(card)], strict=False):
        block = BLOCK_END.split(card[match.end() : end], maxsplit=1)[0]
        if RANKING.fullmatch(match[1]):
            rankings.append((match[1], CARD_SCALE.search(block), "doc_to_query" in block))
    if not rankings:
        return Recorded(batch_size=batch_size)
    # The header of a card lists the loss without its parameters, which follow later.
    name, scale, is_symmetric = next((ranking for ranking in rankings if ranking[1]), rankings[-1])
    is_symmetric |= "Symmetric" in name
    value = float(scale[1]) if scale else RANKING_SCALE
    if not RANGES["scale"][0] <= value <= RANGES["scale"][1]:
        return Recorded(batch_size=batch_size, notes=(f"scale {value:g} of its model card is not used",))
    origin = "recorded in its model card" if scale else "default of the loss, which its model card does not change"
    notes = [f"{name}, scale {value:g} ({origin})"]
    scales = dict.fromkeys(float(match[1]) for _, match, _ in rankings if match)
    notes += [f"scale {value:g} is used, not {scale:g}, also in its model card" for scale in scales if scale != value]
    notes += [] if is_symmetric else [f"{name} trains only q2c: c2q is not counted for ntxent"]
    parameters = {"ntxent": {"temperature": 1 / value}}
    return Recorded("ntxent", parameters, (), tuple(notes), batch_size, not is_symmetric, "its model card")
