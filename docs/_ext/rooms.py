"""The drawing of architecture.md: rooms as boxes, the flow of data as arrows. `python docs/_ext/rooms.py` writes it."""

from pathlib import Path

TARGET = Path(__file__).parent.parent / "architecture.svg"
WIDTH, HEIGHT = 960, 480
WIDE, HIGH = 150, 56  # of a box
# Rooms by their place: name -> (left, top, columns that it is wide, what it does). A name that ends in / is a folder.
ROOMS = {
    "checkpoints/": (60, 50, 2, "a file or a folder becomes embeddings"),
    "embeddings/": (420, 50, 1, "sides, groups, batches"),
    "losses/": (600, 50, 1, "loss and weight"),
    "counting/": (780, 50, 1, "statistics, findings"),
    "engine/": (60, 170, 5.8, "passes over scores of any size: views, readers, a kernel in C"),
    "measures/": (60, 285, 3, "one question a file: Dataset, JSON, table"),
    "monitor/": (600, 285, 2.2, "the same numbers of a live loss; detectors"),
    "results": (60, 400, 1, "saved, read, joined"),
    "plots/": (240, 400, 1, "Dataset to picture"),
    "reports/": (420, 400, 1.4, "findings, LaTeX, page"),
    "cli/": (780, 400, 1, "the command line"),
}
# Arrows: from, to, and the sides of the boxes where they begin and end (right, left, top, bottom).
ARROWS = (
    ("checkpoints/", "embeddings/", "right", "left"),
    ("embeddings/", "losses/", "right", "left"),
    ("losses/", "counting/", "right", "left"),
    ("embeddings/", "engine/", "bottom", "top"),
    ("losses/", "engine/", "bottom", "top"),
    ("counting/", "engine/", "bottom", "top"),
    ("engine/", "measures/", "bottom", "top"),
    ("engine/", "monitor/", "bottom", "top"),
    ("measures/", "results", "bottom", "top"),
    ("measures/", "plots/", "bottom", "top"),
    ("measures/", "reports/", "bottom", "top"),
    ("monitor/", "reports/", "bottom", "top"),
    ("plots/", "reports/", "right", "left"),
    ("reports/", "cli/", "right", "left"),
)
# Words beside the rows: left, top, text.
BANDS = (
    (60, 40, "a file becomes embeddings"),
    (600, 40, "one batch"),
    (60, 160, "batches of any size"),
    (60, 275, "an answer in numbers"),
    (60, 390, "and for people"),
)


def _ends(name: str) -> tuple[float, float, float, float]:
    left, top, columns, _ = ROOMS[name]
    return left, top, WIDE + (columns - 1) * WIDE, HIGH


def _point(name: str, side: str, toward: float) -> tuple[float, float]:
    """Where an arrow touches a box; on its top and bottom as near as it can to the other end's middle."""
    left, top, width, height = _ends(name)
    if side in {"left", "right"}:
        return left + (width if side == "right" else 0), top + height / 2
    return min(max(toward, left + 20), left + width - 20), top + (height if side == "bottom" else 0)


def _arrow(start: str, end: str, out: str, into: str) -> str:
    middle = {name: _ends(name)[0] + _ends(name)[2] / 2 for name in (start, end)}
    x, y = _point(start, out, middle[end])
    x2, y2 = _point(end, into, x if out == "bottom" else middle[start])
    if out == "bottom" and x != x2:
        half = (y + y2) / 2
        path = f"M{x:g},{y:g} V{half:g} H{x2:g} V{y2 - 4:g}"
    elif out == "bottom":
        path = f"M{x:g},{y:g} V{y2 - 4:g}"
    else:
        path = f"M{x:g},{y:g} H{x2 - 4:g}"
    return f'<path d="{path}" class="arrow" marker-end="url(#head)"/>'


def draw() -> str:
    """The drawing as SVG, readable on light and dark pages."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Rooms of cocos and the flow of data between them" font-family="sans-serif">',
        "<style>.room{fill:#eef3fb;stroke:#3b6fb6;stroke-width:1.5}.shelf{fill:#fdf3e3;stroke:#b9770e}",
        ".arrow{fill:none;stroke:#555;stroke-width:1.5}.name{font-weight:bold;font-size:15px;fill:#111}",
        ".what{font-size:12px;fill:#333}.band{font-size:12px;fill:#666;font-style:italic}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    lines += [f'<text x="{x}" y="{y}" class="band">{text}</text>' for x, y, text in BANDS]
    lines += [_arrow(*arrow) for arrow in ARROWS]
    for name, (*_, what) in ROOMS.items():
        left, top, width, height = _ends(name)
        kind = "room shelf" if name.endswith("/") else "room"
        lines.append(f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height}" rx="8" class="{kind}"/>')
        lines.append(f'<text x="{left + width / 2:g}" y="{top + 24}" text-anchor="middle" class="name">{name}</text>')
        lines.append(f'<text x="{left + width / 2:g}" y="{top + 43}" text-anchor="middle" class="what">{what}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(draw(), "utf-8")
