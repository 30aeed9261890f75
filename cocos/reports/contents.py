"""Table of the contents of a checkpoint, or of the checkpoints of a run."""

from cocos.base import terminal
from cocos.reports.tables import Table

# Largest number of lines for the settings, the tensors, the class weights, the parts of a tower and the checkpoints.
SETTING_LINES, TENSOR_LINES, CLASS_WEIGHT_LINES, PARTS, RUN_LINES = 40, 24, 6, 8, 40


def table(about: dict) -> Table:
    """Write what a file, folder or run says of itself (the JSON of `cocos inspect`), and the command to type next."""
    typed = (f"next: {about['next']}",) if about["next"] else ()
    if "checkpoints" in about:
        return _run(about, typed)
    if "tensors" not in about:  # training data
        rows = [(key, about[key]) for key in ("path", "container", "format")]
        rows += [("splits", ", ".join(about["splits"])), *_pairs(about["contents"])]
        return Table(("", ""), tuple(rows), left=True, typed=typed)
    known = _text(f"{about['format']}: {about['why']}") if about["why"] else f"{about['format']}, of no known model"
    rows = [("path", about["path"]), ("container", about["container"]), ("format", known)]
    rows += [("sha256", about["sha256"]), *_pairs(about["contents"])]
    rows += [(f"tower {each['name']}".rstrip(), _tower(each)) for each in about["towers"]]
    rows += _training(about)
    untold = [each for each in about["tensors"] if each["name"] not in about["contents"]]
    number = about["tensors_in_all"] - len(about["tensors"]) + len(untold)
    shown = untold[: 0 if about["encoder"] and about["towers"] else TENSOR_LINES]
    rows += [(_text(each["name"]), f"({', '.join(map(str, each['shape']))}) {each['dtype']}") for each in shown]
    if shown and number > len(shown):
        rows.append(("", f"and {number - len(shown)} more tensors (--json)"))
    rows += [("missing", _text(each)) for each in about["missing"]]
    if about["read_as_values"]:
        rows.append(("read as plain values", ", ".join(about["read_as_values"])))
    rows += [("refused", _text(f"{each['file']}: {', '.join(each['names'][:4])}")) for each in about["refused"]]
    known = about["encoder"] or about["proxies"]
    pointed = () if known else about["class_weights"][:CLASS_WEIGHT_LINES]
    notes = [each["advice"] for each in pointed]
    notes += [about["advice"]] if about["advice"] else []
    return Table(("", ""), tuple(rows), notes=tuple(notes), left=True, typed=typed)


def _tower(tower: dict) -> str:
    """Describe a state dict by its parameters and those of its parts."""
    parts = [f"{name} {_count(number)}" for name, number in tower["parts"].items()]
    more = f", and {len(parts) - PARTS} more" if len(parts) > PARTS else ""
    inside = f" ({', '.join(parts[:PARTS])}{more})" if len(parts) > 1 else ""
    stripped = f", without {' and '.join(tower['stripped'])}" if tower["stripped"] else ""
    dtypes = ", ".join(tower["dtypes"])
    return _text(
        f"{_count(tower['parameters'])} parameters of {dtypes} in {tower['tensors']} tensors{inside}{stripped}"
    )


def _count(number: int) -> str:
    """Write a number of parameters with three digits."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def _training(about: dict) -> list[tuple[str, str]]:
    """Write what the training recorded: loss, parameters, progress, settings."""
    rows = [("trained with", about["trained_with"])] if about["trained_with"] else []
    rows += [(f"recorded for {name}", _text(parameters)) for name, parameters in about["recorded"].items()]
    rows += [("splits", ", ".join(about["splits"]))] if about["splits"] else []
    rows += [
        pair for pair in _pairs(about["training"]) if not {pair[0], pair[0].replace("_", " ")} & set(about["contents"])
    ]
    told = about["contents"].keys()
    settings = _pairs({name: each for name, each in about["hyper_parameters"].items() if name not in told})
    rows += settings[:SETTING_LINES]
    if len(settings) > SETTING_LINES:
        rows.append(("", f"and {len(settings) - SETTING_LINES} more settings (--json)"))
    for one in about["loss_settings"]:
        use = "used" if one["used"] else f"not used: {one['reason']}"
        rows.append((f"{one['parameter']} {one['value']:g}", _text(f"{one['source']}; {use}")))
    return rows


def _run(about: dict, typed: tuple[str, ...]) -> Table:
    """List the checkpoints of a run in the order of their steps."""
    rows = []
    for each in about["checkpoints"][:RUN_LINES]:
        format = each["format"] or f"no known model ({each['container'] or 'not read'})"
        step = "" if each["step"] is None else str(each["step"])
        rows.append((_text(each["name"]), step, f"{each['size']:,}", format))
    more = len(about["checkpoints"]) - len(rows)
    notes = [_text(each["advice"]) for each in about["checkpoints"] if each["container"] in {"refused", "unreadable"}]
    notes += [f"and {more} more checkpoints (--json)"] if more > 0 else []
    number = len(about["checkpoints"])
    head = (f"{about['path']}: {number} checkpoint{'s' if number > 1 else ''}, in the order of their steps",)
    return Table(("checkpoint", "step", "bytes", "format"), tuple(rows), head=head, notes=tuple(notes), typed=typed)


def _pairs(values: dict) -> list[tuple[str, str]]:
    return [(key, _text(value)) for key, value in _flat(values)]


def _flat(values: dict, prefix: str = "") -> list[tuple[str, object]]:
    """Flatten nested plain data to dotted names."""
    flat = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat += _flat(value, f"{name}.") if isinstance(value, dict) and value else [(name, value)]
    return flat


def _text(value) -> str:
    """Write plain data on one line, without control characters."""
    if isinstance(value, dict):
        value = ", ".join(f"{k}={v}" for k, v in value.items())
    return terminal.clean(value)
