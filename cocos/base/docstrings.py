"""The parts of a docstring by name: first line, formula, sections, parameters."""

import inspect
import re

HEADING = re.compile(r"^(Args|Raises|[A-Z][a-z]+(?: [a-z]+)?):(?:\s+(.*))?$")


def summary(cls: type) -> str:
    """The first line of the docstring."""
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]


def formula(cls: type) -> str:
    """The mathematics of the docstring, as LaTeX on one line; empty where there is none."""
    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(".. math::")), None)
    if start is None:
        return ""
    block = [lines[start].removeprefix(".. math::").strip()]
    for line in lines[start + 1 :]:
        if line and not line.startswith(" "):
            break
        block.append(line.strip())
    return " ".join(part for part in block if part)


def sections(cls: type) -> dict[str, str]:
    """Paragraphs with a name, each on one line: `Counts`, `Net`, `Source` and others."""
    descriptions, name = {}, None
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        heading = HEADING.match(line)
        if heading:
            name = heading[1]
            descriptions[name] = heading[2] or ""
        elif not line:
            name = None
        elif name:
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions


def parameters(documented: object) -> dict[str, str]:
    """Description of each parameter under `Args:` of an object, or of a docstring itself, each on one line."""
    text = documented if isinstance(documented, str) else documented.__doc__
    lines = inspect.cleandoc(text or "").splitlines()
    if "Args:" not in lines:
        return {}
    descriptions, name = {}, None
    for line in lines[lines.index("Args:") + 1 :]:
        if not line.startswith(" "):
            break
        item = re.match(r"^    \*{0,2}(\w+): (.*)$", line)
        if item:
            name = item[1]
            descriptions[name] = item[2]
        elif name:
            descriptions[name] += f" {line.strip()}"
    return descriptions
