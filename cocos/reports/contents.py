"""Table of the contents of a checkpoint."""

import shlex

from cocos.reports import terminal
from cocos.reports.layout import Table

# Largest number of lines for the settings, the tensors and the class weights of a file.
SETTING_LINES, TENSOR_LINES, CLASS_WEIGHT_LINES = 40, 24, 6


def table(about: dict) -> Table:
    """Write what a checkpoint records about itself (the JSON of `cocos inspect`), and the command to type next."""
    rows = [(key, str(about[key])) for key in ("path", "format", "sha256")]
    rows += [(key, _text(value)) for key, value in _flat(about["contents"])]
    if about["trained_with"]:
        rows.append(("trained with", about["trained_with"]))
    rows += [(f"recorded for {name}", _text(parameters)) for name, parameters in about["recorded"].items()]
    if about["splits"]:
        rows.append(("splits", ", ".join(about["splits"])))
    settings = _flat(about["hyper_parameters"])
    rows += [(key, _text(value)) for key, value in settings[:SETTING_LINES]]
    if len(settings) > SETTING_LINES:
        rows.append(("", f"and {len(settings) - SETTING_LINES} more settings (--json)"))
    rows += [(f"hint: {name}", f"{value:g}, recorded in the file") for name, value in about["hints"].items()]
    shown = about["tensors"][:TENSOR_LINES]
    rows += [(_text(each["name"]), f"({', '.join(map(str, each['shape']))}) {each['dtype']}") for each in shown]
    if about["tensors_in_all"] > len(shown):
        rows.append(("", f"and {about['tensors_in_all'] - len(shown)} more tensors (--json)"))
    notes = tuple(each["advice"] for each in about["class_weights"][:CLASS_WEIGHT_LINES])
    if about["advice"]:
        return Table(("", ""), tuple(rows), notes=(*notes, about["advice"]), left=True)
    data = f" --data {shlex.quote(about['data'])}" if about["data"] else ""
    command = f"next: cocos count {shlex.quote(about['path'])}{data} --loss {about['trained_with'] or 'ntxent'}"
    return Table(("", ""), tuple(rows), notes=notes, left=True, typed=(command,))


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
