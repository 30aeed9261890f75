"""Pages made from the package: one for each loss, the help of each command, the public names."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import cocos
from cocos import losses, measures, plots
from cocos.cli import COMMANDS
from cocos.plots import saving
from cocos.reports import cards

POINTS = 161  # scores along each curve of a loss's picture
COLUMNS = 92  # characters of a line of help
# The calls that one needs first, at the head of the API.
BEGIN = """.. list-table::
   :class: card

   * - ``cocos.open(path).embed()``
     - embeddings of a file or of a checkpoint
   * - ``cocos.Embeddings(query, candidate)``
     - of two arrays whose row i matches row i; with groups where several rows match
   * - ``cocos.Embeddings.labelled(embeddings, labels)``
     - of a labelled set
   * - ``cocos.Scores(matrix, positive)``
     - scores without vectors
   * - ``cocos.measures.count(embeddings, loss)``
     - contributing negatives: a labelled Dataset; each question is a function of :doc:`cocos.measures <measures>`
   * - ``cocos.Monitor(loss)``
     - the same numbers while a model trains
   * - ``cocos.losses.load(name)``
     - a loss with its closed form
   * - ``cocos.report(...)``
     - one page to show
"""
# Names by which most people know a loss, at the head of the list of losses.
COMMON = (
    *("InfoNCE", "SimCLR", "CLIP loss", "multiple negatives ranking", "supervised contrastive", "sigmoid loss"),
    *("VSE++", "batch-hard triplet", "triplet margin loss", "FaceNet loss", "siamese loss", "NormFace", "AM-Softmax"),
    *("AAM-Softmax", "MS loss", "cross-entropy", "LambdaRank", "ListNet"),
)
QUOTED = re.compile(r"(:\w+:)?(`+).*?\2", re.DOTALL)


def write(path: Path, text: str) -> None:
    """Write a page only where it has changed, so that the next build reads the others from its cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def only(folder: Path, names: Iterable[str], suffix: str = ".rst") -> None:
    """Remove pages of an earlier build whose subject is gone."""
    for old in set(folder.glob(f"*{suffix}")) - {folder / f"{name}{suffix}" for name in (*names, "index")}:
        old.unlink()


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n\n"


def aliases(name: str) -> dict[str, str]:
    """Return the other names of a loss, each with the parameters that it implies."""
    return {
        alias: ", ".join(f"{key}={value}" for key, value in implied.items())
        for alias, implied in losses.load(name).aliases.items()
    }


def loss_title(name: str) -> str:
    """The name that people use, and up to three others: these are what one searches for."""
    known = re.split(r"[:.,](?:\s|$)", inspect.getdoc(sys.modules[type(losses.load(name)).__module__]))[0]
    others = [each for each, implied in aliases(name).items() if not implied and each.lower() != known.lower()]
    return known + (f" ({', '.join(others[:3])})" if others else "")


def loss_page(name: str, pictures: Path) -> str:
    """The page of one loss: its card as a table, its docstring, its weight drawn, its equals."""
    loss, about = losses.load(name), cards.entry(name)
    cls = type(loss)
    curve = measures.weight_curve(loss, points=POINTS)
    saving.save_panels([partial(plots.weight_curve, curve)], pictures / f"{name}.svg", size=(6.4, 4.4))
    rows = {
        "command line": f"``--loss {name}``",
        "parameters": ", ".join(f"``{key}={value}``" for key, value in about["parameters"].items()) or "none",
        "score": about["metric"].replace("_", " "),
        **{key: about[key] for key in ("family", "gradient", "couples")},
    }
    text = _title(loss_title(name))
    sought = dict.fromkeys((name, cls.__name__, *aliases(name)))
    text += "".join(f".. index:: ! {each}\n" for each in sought) + "\n"
    text += ".. list-table::\n   :class: card\n   :stub-columns: 1\n\n"
    text += "".join(f"   * - {key}\n     - {escaped(value)}\n" for key, value in rows.items())
    text += f"\n.. autoclass:: {cls.__module__}.{cls.__name__}\n\n"
    text += _title("Weight against score", "-")
    text += f".. image:: /_static/losses/{name}.svg\n   :alt: Weights of a negative and of the positive under {name}"
    text += " against their scores.\n\n"
    text += (
        "Gradient weight of one negative (solid) while its score moves, beside eight other negatives (ticks) and a "
        "positive at the dotted line; and of the positive (dashed) while its own score moves. "
        f"``cocos plot weight-curve --loss {name}`` draws it.\n\n"
    )
    if about["equal_to"]:
        text += _title("Equal to", "-") + ".. list-table::\n   :header-rows: 1\n\n   * - loss\n     - where\n"
        for other in about["equal_to"]:
            text += f"   * - ``{other['loss']}``\n     - {other['where']}\n"
    return text


def common() -> str:
    """A table of the names that most people know, with the losses of the shelf that they mean."""
    known = {other: (name, implied) for name in losses.names() for other, implied in aliases(name).items()}
    text = "If you know a loss by one of these names, it is on the shelf as:\n\n.. list-table::\n   :header-rows: 1\n\n"
    text += "   * - you know it as\n     - loss\n     - with\n"
    for other in COMMON:
        name, implied = known[other]
        given = f" ``{implied}``" if implied else ""
        text += f"   * - {other}\n     - :doc:`{name} <{name}>`\n     -{given}\n"
    return text + "\nEvery other name is an entry of the search and of ``cocos losses``; ``--loss`` takes it too.\n\n"


def losses_pages(folder: Path, pictures: Path) -> None:
    """A page for each loss, and the list of them by family."""
    families: dict[str, list[dict]] = {}
    for name in losses.names():
        about = cards.entry(name)
        families.setdefault(about["family"], []).append(about)
        page = loss_page(name, pictures)
        write(folder / f"{name}.rst", page)
    only(folder, losses.names())
    text = _title("Losses") + (
        f"All {len(losses.names())} losses of the shelf. Each is one file with its formula, its source and a closed "
        "form of its gradient, which the tests compare with autograd. The examples assume ``import cocos, torch``.\n\n"
    )
    text += common()
    for family in sorted(families):
        text += _title(family[:1].upper() + family[1:], "-") + ".. list-table::\n   :widths: 25 75\n\n"
        for about in families[family]:
            text += f"   * - :doc:`{loss_title(about['name'])} <{about['name']}>`\n     - {escaped(about['summary'])}\n"
        text += "\n"
    text += ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name} <{name}>\n" for name in losses.names())
    write(folder / "index.rst", text)


def _help(*words: str) -> str:
    """The help of cocos or of a command, as a terminal shows it."""
    asked = [sys.executable, "-m", "cocos", *words]
    environment = os.environ | {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    return subprocess.run(asked, capture_output=True, text=True, check=True, env=environment).stdout


def commands_page(page: Path) -> None:
    """The help of `cocos` and of each of its commands on one page."""
    text = _title("Commands") + "The text that ``cocos --help`` and ``cocos COMMAND --help`` print.\n\n"
    for name, shown in (("cocos", _help("--help")), *((name, _help(name, "--help")) for name in COMMANDS)):
        text += _title(name, "-") + ".. code-block:: text\n\n"
        text += "".join(f"   {line}".rstrip() + "\n" for line in shown.strip().splitlines()) + "\n"
    write(page, text)


def _documented(module: str, name: str) -> str:
    """The autodoc directive of a class or function of a module; nothing for other values."""
    found = getattr(importlib.import_module(module), name)
    if not callable(found) or (module != "cocos" and found is getattr(cocos, name, None)):
        return ""
    kind = "class" if inspect.isclass(found) else "function"
    if kind == "function" or issubclass(found, Exception):
        return f".. auto{kind}:: {module}.{name}\n\n"
    made = [each for each, value in vars(found).items() if isinstance(value, classmethod) and each[0] != "_"]
    first = "".join(f".. automethod:: {module}.{name}.{each}\n\n" for each in made)
    rest = f"   :exclude-members: {', '.join(made)}\n" if made else ""
    return f"{first}.. autoclass:: {module}.{name}\n   :members:\n{rest}\n"


def api_pages(folder: Path) -> None:
    """The public names: one page for those of `cocos` itself, one for each of its modules."""
    public = [name for name in dir(cocos) if name != "__version__"]
    public.sort(key=lambda name: (inspect.isclass(getattr(cocos, name)), name))  # functions that make things first
    modules = [name for name in public if inspect.ismodule(getattr(cocos, name))]
    text = _title("API") + (
        "The names of ``cocos`` itself. Each of its modules has a page of its own. The examples assume "
        "``import cocos, torch``.\n\n"
    )
    text += _title("Begin here", "-") + BEGIN + "\n"
    text += _title("Modules", "-") + ".. toctree::\n   :maxdepth: 1\n\n" + "".join(f"   {name}\n" for name in modules)
    text += "\n" + _title("Functions and classes", "-")
    text += "".join(_documented("cocos", name) for name in public if name not in modules)
    write(folder / "index.rst", text)
    only(folder, modules)
    for name in modules:
        module = getattr(cocos, name)
        text = _title(f"cocos.{name}") + f".. module:: {module.__name__}\n\n"
        text += "\n".join(map(escaped, inspect.cleandoc(module.__doc__).splitlines())) + "\n\n"
        if name == "measures":  # the options that most of them share are documented once
            for options in ("SourceOptions", "Queries", "OneBatch", "Sampling"):
                text += f".. autoclass:: cocos.embeddings.options.{options}\n\n"
        write(
            folder / f"{name}.rst",
            text + "".join(_documented(module.__name__, each) for each in getattr(module, "__all__", ())),
        )


def escaped(line: str) -> str:
    """A line with its bars and stars kept from being markup, except inside backquotes."""
    parts, end = [], 0
    for quoted in QUOTED.finditer(line):
        parts += [re.sub(r"[|*]", r"\\\g<0>", line[end : quoted.start()]), quoted[0]]
        end = quoted.end()
    return "".join([*parts, re.sub(r"[|*]", r"\\\g<0>", line[end:])])
