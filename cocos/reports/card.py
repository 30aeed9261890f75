"""The card of an encoder: a table of its sets, in Markdown and LaTeX too, and a badge."""

import re
from html import escape
from pathlib import Path

import xarray as xr

from cocos import measures
from cocos.base import terminal
from cocos.base.layout import Table
from cocos.reports.latex import escaped
from cocos.results.phrases import small_part

# Rows of each set: name of the number, label, and how it is written.
SET_ROWS = (
    ("R@1", "R@1, %", lambda value: f"{value:.1f}"),
    ("suspected_push", "push on suspected false negatives", small_part),
    ("suspected", "these, part of the negatives", small_part),
    ("hub_push", "push on 1 % of the candidates", small_part),
    ("rank", "effective rank of the candidates", lambda value: f"{value:.0f}"),
    ("similarity", "mean cosine of random candidates", lambda value: f"{value:.2f}"),
)
# Batch size that the badge speaks of, where it is there.
BADGE_BATCH = "128"
# Height of the badge, width of a character of its font, and room around a text, in pixels.
HEIGHT, CHARACTER, MARGIN_PIXELS = 20, 6.6, 10
NAME_COLOUR, VALUE_COLOUR = "#555", "#2b6ca3"


def _rows(data: xr.Dataset) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Columns, rows and notes of the table."""
    found = measures.document("card", data)
    sets, sizes = found["sets"], [str(size) for size in data["batch_size"].values.tolist()]
    own = _own(found)
    rows = []
    for size in sizes:
        each = [one["batch_sizes"].get(size) for one in sets.values()]
        if not any(each):
            continue
        rows += [
            (f"equilibrium temperature, batch {size}", *map(_temperature, each)),
            (f"effective negatives there, batch {size}", *(_number(one, "effective") for one in each)),
            (f"effective negatives at {own}, batch {size}", *(_number(one, "effective_own") for one in each)),
        ]
    for name, label, write in SET_ROWS:
        cells = ("" if one[name] is None else write(one[name]) for one in sets.values())
        rows.append((label, *cells))
    rows.append(("queries, candidates", *(f"{one['queries']}, {one['candidates']}" for one in sets.values())))
    notes = [f"{key}: {value}" for key, value in found["trained"].items()]
    notes = notes or ["the files of the encoder say nothing of its training"]
    return ("", *sets), rows, notes


def _own(found: dict) -> str:
    """The loss's own temperature."""
    given = found["loss"]["parameters"]
    return f"{1 / given['scale'] if 'scale' in given else given['temperature']:.3g}"


def _temperature(one: dict | None) -> str:
    """The equilibrium, or what there is in its place."""
    if one is None:
        return ""
    there = one["equilibrium_temperature"]
    return f"{there:.3g}" if there is not None else {"grows": "none: clip"}.get(one["state"], "none")


def _number(one: dict | None, name: str) -> str:
    return "" if one is None or one[name] is None else f"{one[name]:.3g}"


def _title(data: xr.Dataset) -> str:
    path = data.attrs.get("checkpoint_path", "")
    return f"Card of {Path(path).name}" if path else "Card of an encoder"


def _about(data: xr.Dataset) -> str:
    """What the numbers are of."""
    return f"{data.attrs['loss_repr']}; batches of pairs, seed {data.attrs['seed']}; of frozen embeddings"


def table(data: xr.Dataset) -> Table:
    """Write the card: a column for each set."""
    columns, rows, notes = _rows(data)
    return Table(columns, tuple(rows), (_title(data), _about(data)), tuple(notes))


def text(data: xr.Dataset) -> str:
    """Write the card as text no wider than the terminal."""
    return table(data).text(terminal.room())


def markdown(data: xr.Dataset) -> str:
    """Write the card in Markdown, with what the files say as a list below it."""

    def plain(text: str) -> str:
        return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", terminal.clean(text))

    columns, rows, notes = _rows(data)
    lines = [[plain(each) for each in line] for line in (columns, *rows)]
    body = [lines[0], ["---", *["---:"] * (len(columns) - 1)], *lines[1:]]
    shown = "\n".join(f"| {' | '.join(line)} |" for line in body)
    below = "\n".join(f"- {plain(note)}" for note in (*notes, _about(data)))
    return "\n\n".join([plain(_title(data)), shown, below])


def latex(data: xr.Dataset) -> str:
    r"""Write the card as a LaTeX tabular, for the package booktabs."""
    columns, rows, notes = _rows(data)
    lines = [" & ".join(map(escaped, line)) + r" \\" for line in (columns, *rows)]
    return "\n".join([
        f"% {terminal.clean(_title(data))}, cocos {data.attrs['cocos']}",
        *(f"% {terminal.clean(note)}" for note in (*notes, _about(data))),
        rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
    ])


FORMATS = {"text": text, "markdown": markdown, "latex": latex}


def badge(data: xr.Dataset) -> str:
    """Draw the badge: an SVG that needs nothing else, with the range over the sets of the numbers at one batch size.

    Examples:
        >>> from cocos.reports import card
        >>> rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.card({"pairs": cocos.Embeddings(rows, rows + 0.1)}, batch_sizes=[32])
        >>> "no equilibrium" in card.badge(data)
        True
    """
    found = measures.document("card", data)["sets"].values()
    sizes = {size for one in found for size in one["batch_sizes"]}
    size = BADGE_BATCH if BADGE_BATCH in sizes else max(sizes, key=int)
    each = [one["batch_sizes"][size] for one in found if size in one["batch_sizes"]]
    settled = [one["equilibrium_temperature"] for one in each if one["equilibrium_temperature"] is not None]
    effective = [one["effective"] for one in each if one["effective"] is not None]
    pushed = [100 * one["suspected_push"] for one in found if one["suspected_push"] is not None]
    said = [f"temperature {_range(settled, '.2g')}" if settled else "no equilibrium"]
    said += [f"{_range(effective, '.2g')} effective of {size}"] if effective else []
    said += [f"{_range(pushed, '.2g')} % on suspects"] if pushed else []
    name, value = "cocos", ", ".join(said)
    left, right = (round(len(part) * CHARACTER + 2 * MARGIN_PIXELS) for part in (name, value))
    words = escape(f"{_title(data)}: {value}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img" '
        f'aria-label="{words}"><title>{words}</title>'
        f'<rect width="{left}" height="{HEIGHT}" fill="{NAME_COLOUR}"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{VALUE_COLOUR}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{name}</text><text x="{left + right / 2:g}" y="14">{escape(value)}</text>'
        "</g></svg>\n"
    )


def _range(values: list[float], form: str) -> str:
    """The lowest and the highest number, or the one that both are."""
    low, high = (format(each, form) for each in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
