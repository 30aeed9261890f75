"""What the files beside a model say of its training: the header of its README, as text. Nothing in them is executed."""

from pathlib import Path

from cocos.base import reading

CARD_FILE = "README.md"
# Bytes of the file that are read, and of a list the entries that are kept.
CARD_BYTES, CARD_ENTRIES = 2**20, 50
# Keys of the header that say where a model comes from, and beginnings of tags that name a loss or a number of rows.
CARD_KEYS = ("license", "language", "library_name", "base_model", "model_name", "datasets")
CARD_TAGS = {"loss:": "loss", "dataset_size:": "training rows"}
# Words of the text below the header that tell how a model was trained, if it says nothing in the header.
TRAINING_WORDS = ("contrastive", "distill", "matryoshka", "cross entropy", "masked language")
CHARACTERS = 200  # of a value that is kept


def read(path: Path | str) -> dict[str, str]:
    r"""Read what the card of a model says of its training, by key; empty where there is none.

    Args:
        path: of the folder of the model, or of a file in it.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "README.md").write_text("---\nlicense: mit\ntags:\n- loss:CoSENTLoss\n---\nText")
        >>> cocos.checkpoints.model_cards.read(folder)
        {'license': 'mit', 'loss': 'CoSENTLoss'}
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    card = folder / CARD_FILE
    if not card.is_file():
        return {}
    with reading.stream(card) as stream:
        text = stream.read(CARD_BYTES).decode("utf-8", "replace")
    head, body = _parts(text)
    said, listed = {}, _entries(head)
    for key in CARD_KEYS:
        if values := listed.get(key):
            said[key] = _short(", ".join(values))
    for tag in listed.get("tags", ()):
        for start, name in CARD_TAGS.items():
            if tag.startswith(start):
                said[name] = _short(tag.removeprefix(start))
    if "loss" not in said and (found := [word for word in TRAINING_WORDS if word in body.lower()]):
        said["words in its text"] = ", ".join(found)
    return said


def _parts(text: str) -> tuple[list[str], str]:
    """Lines of the header between two lines of dashes, and the text below it."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return [], text
    end = next((place for place, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    return ([], text) if end is None else (lines[1:end], "\n".join(lines[end + 1 :]))


def _entries(lines: list[str]) -> dict[str, list[str]]:
    """Keys of the first level with their value, or the entries of their list; deeper levels are ignored."""
    found: dict[str, list[str]] = {}
    key = None
    for line in lines:
        name, colon, value = line.partition(":")
        if line[:1] not in {" ", "-", "#", ""} and colon:
            key = name.strip()
            found[key] = [value.strip().strip("\"'")] if value.strip() else []
        elif key is not None and line.lstrip().startswith("- ") and len(found[key]) < CARD_ENTRIES:
            found[key].append(line.lstrip()[2:].strip().strip("\"'"))
    return {name: values for name, values in found.items() if values}


def _short(text: str) -> str:
    """A value of bounded length on one line, of printable characters."""
    text = "".join(each for each in " ".join(text.split()) if each.isprintable())
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…"
