"""Table of the contents of a file, or of the checkpoints of a run."""

from cocos.base import terminal
from cocos.reports.tables import Table

# Largest number of lines for the settings, the tensors, the class weights and the checkpoints.
SETTING_LINES, TENSOR_LINES, RUN_LINES = 40, 24, 40


def table(about: dict) -> Table:
    """Write the JSON of `cocos inspect` as a table, with the command to type next."""
    typed = (f"next: {about['next']}",) if about["next"] else ()
    if "checkpoints" in about:
        return _run(about, typed)
    if "tensors" not in about:  # training data
        rows = [(key, about[key]) for key in ("path", "container", "format")]
        rows += [("splits", ", ".join(about["splits"])), *_flat(about["contents"])]
        return Table(("", ""), tuple(rows), left=True, typed=typed)
    contents = about["contents"]
    format = f"{about['format']}: {about['why']}" if about["why"] else f"{about['format']}, unknown model"
    rows = [("path", about["path"]), ("container", about["container"]), ("format", terminal.clean(format))]
    rows += [("sha256", about["sha256"]), *_flat(contents)]
    for tower in about["towers"]:
        size = f"{_count(tower['parameters'])} parameters in {tower['tensors']} tensors, {', '.join(tower['dtypes'])}"
        rows.append((f"tower {tower['name']}".rstrip(), terminal.clean(size)))
    rows += [("trained with", about["trained_with"])] if about["trained_with"] else []
    rows += _flat({f"recorded for {name}": parameters for name, parameters in about["recorded"].items()}, nested=False)
    rows += [("splits", ", ".join(about["splits"]))] if about["splits"] else []
    rows += [row for row in _flat(about["training"]) if not {row[0], row[0].replace("_", " ")} & set(contents)]
    settings = _flat({name: value for name, value in about["hyper_parameters"].items() if name not in contents})
    rows += _first(settings, SETTING_LINES, "settings", len(settings))
    for setting in about["loss_settings"]:
        use = "used" if setting["used"] else f"not used: {setting['reason']}"
        rows.append((f"{setting['parameter']} {setting['value']:g}", terminal.clean(f"{setting['source']}; {use}")))
    if not (about["encoder"] and about["towers"]):
        tensors = [tensor for tensor in about["tensors"] if tensor["name"] not in contents]
        number = about["tensors_in_all"] - len(about["tensors"]) + len(tensors)
        cells = [(t["name"], f"({', '.join(map(str, t['shape']))}) {t['dtype']}") for t in tensors]
        rows += _first(cells, TENSOR_LINES, "tensors", number)
    rows += [("missing", text) for text in about["missing"]]
    rows += [("refused", f"{refusal['file']}: {', '.join(refusal['names'][:4])}") for refusal in about["refused"]]
    notes = (about["advice"],) if about["advice"] else ()
    return Table(("", ""), tuple(rows), notes=notes, left=True, typed=typed)


def _run(about: dict, typed: tuple[str, ...]) -> Table:
    """List the checkpoints of a run in the order of their steps."""
    checkpoints, rows = about["checkpoints"], []
    for file in checkpoints[:RUN_LINES]:
        format = file["format"] or f"unknown model ({file['container'] or 'not read'})"
        rows.append((file["name"], "" if file["step"] is None else str(file["step"]), f"{file['size']:,}", format))
    notes = [file["advice"] for file in checkpoints if file["container"] in {"refused", "unreadable"}]
    if len(checkpoints) > RUN_LINES:
        notes.append(f"and {len(checkpoints) - RUN_LINES} more checkpoints (--json)")
    plural = "s" if len(checkpoints) > 1 else ""
    head = (f"{about['path']}: {len(checkpoints)} checkpoint{plural}, in the order of their steps",)
    return Table(("checkpoint", "step", "bytes", "format"), tuple(rows), head, tuple(notes), typed=typed)


def _first(rows: list[tuple], limit: int, noun: str, number: int) -> list[tuple]:
    """Return the first rows, and a line that counts the remaining ones."""
    more = number - min(len(rows), limit)
    return [*rows[:limit], *([("", f"and {more} more {noun} (--json)")] if rows and more > 0 else [])]


def _count(number: int) -> str:
    """Write a number of parameters with three digits."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def _flat(values: dict, prefix: str = "", *, nested: bool = True) -> list[tuple[str, str]]:
    """Return the rows of plain data; nested data gets dotted names, or is written on one line."""
    rows = []
    for key, value in values.items():
        if isinstance(value, dict) and value and nested:
            rows += _flat(value, f"{prefix}{key}.")
        else:
            text = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
            rows.append((f"{prefix}{key}", terminal.clean(text)))
    return rows
