"""`cocos card`."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from cocos.base.errors import InputError
from cocos.commands._answer import Answer, answer, checked, progress
from cocos.commands._options import SHARED, Opening, argument, option
from cocos.commands._program import command

CardFormat = StrEnum("CardFormat", ["text", "markdown", "latex"])
CARD_PLACE = 300  # after the other commands of its section


@command(
    "Look at a file",
    CARD_PLACE,
    first="data loss batch_size format badge out",
    epilog="Example: cocos card all-MiniLM-L6-v2 --data captions.jsonl --data pairs.jsonl --badge card.svg",
    options={
        "model": argument(
            list[Path],
            "A checkpoint or folder of an encoder, with --data; or files of its embeddings, one a set.",
            metavar="MODEL...",
        ),
        "data": option(list[str] | None, "Training data of a set; repeatable."),
        "loss": option(str | None, "A softmax over scale * score. [as the checkpoint records, or ntxent at 0.05]"),
        "batch_size": option(list[int] | None, "Pairs in a batch; repeatable. [32, 128, 512]"),
        "split": SHARED["split"],
        "seed": SHARED["seed"],
        "device": SHARED["device"],
        "format": option(CardFormat, "Output: text, markdown or latex.", CardFormat.text),
        "badge": option(Path | None, "Write a badge to this file (.svg)."),
        "out": SHARED["out"],
    },
)
def card(model, data, loss, batch_size, split, seed, device, format, badge, out) -> Answer:
    """Describe how an encoder was taught: temperature, effective negatives, suspects and hubs on several sets."""
    from cocos import measures
    from cocos.base import writing
    from cocos.checkpoints import model_cards
    from cocos.reports import card as reports

    if data and len(model) > 1:
        raise InputError(f"{len(model)} models with --data: describe them one by one")
    if badge is not None and badge.suffix != ".svg":
        raise InputError(f"--badge {badge}: expected a file that ends in .svg")
    checked(out, *model, *(data or ()))
    sources = [(Path(each).stem, model[0], each) for each in data or ()] or [(each.stem, each, None) for each in model]
    names = [name for name, _, _ in sources]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two sets are called {twice}: rename a file")
    opened = {name: Opening(data=given).open(path) for name, path, given in sources}
    with progress() as start:
        found = measures.card(
            opened,
            loss,
            **({"batch_sizes": tuple(batch_size)} if batch_size else {}),
            said=model_cards.read(model[0]),
            split=split,
            seed=seed,
            device=device,
            progress=start,
        )
    made = answer("card", found, out, text=lambda: reports.FORMATS[format](found))
    if badge is None:
        return made
    return replace(made, wrote=(*made.wrote, writing.write(badge, reports.badge(found).encode())))
