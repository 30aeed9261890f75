"""The drawing of architecture.md: rooms as boxes, the flow of data as arrows. `python docs/_ext/rooms.py` writes it."""

from pathlib import Path

TARGET = Path(__file__).parent.parent / "architecture.svg"
WIDTH, HEIGHT = 960, 560
WIDE, HIGH = 150, 56  # of a box
# Rooms by their place: name -> (left, top, columns that it is wide, what it does). A name that ends in / is a folder.
ROOMS = {
    "checkpoints/": (60, 50, 1, "formats of files"),
    "encoders/": (240, 50, 1, "architectures"),
    "data/": (420, 50, 1, "training data"),
    "embeddings": (780, 50, 1, "both sides, groups"),
    "batches/": (60, 170, 1, "draws by a seed"),
    "scores": (240, 170, 1, "Pairs of a batch"),
    "losses/": (420, 170, 1, "loss and weight"),
    "weights": (600, 170, 1, "closed form, autograd"),
    "statistics": (780, 170, 1, "counts, spread"),
    "engine/": (240, 285, 4.6, "passes over scores of any size: views, readers, a kernel in C"),
    "measures/": (240, 385, 4.6, "one question a file: a labelled Dataset"),
    "plots/": (240, 485, 1, "Dataset to picture"),
    "reports/": (480, 485, 1.4, "tables, LaTeX, saved figures"),
    "commands/": (780, 485, 1, "one command a file"),
}
# Arrows: from, to, and the sides of the boxes where they begin and end (right, left, top, bottom).
ARROWS = (
    ("checkpoints/", "encoders/", "right", "left"),
    ("encoders/", "data/", "right", "left"),
    ("data/", "embeddings", "right", "left"),
    ("embeddings", "batches/", "bottom", "top"),
    ("batches/", "scores", "right", "left"),
    ("scores", "losses/", "right", "left"),
    ("losses/", "weights", "right", "left"),
    ("weights", "statistics", "right", "left"),
    ("scores", "engine/", "bottom", "top"),
    ("losses/", "engine/", "bottom", "top"),
    ("statistics", "engine/", "bottom", "top"),
    ("engine/", "measures/", "bottom", "top"),
    ("measures/", "plots/", "bottom", "top"),
    ("measures/", "reports/", "bottom", "top"),
    ("plots/", "reports/", "right", "left"),
    ("reports/", "commands/", "right", "left"),
)
# Words beside the rows: left, top, text.
BANDS = (
    (60, 40, "a file becomes embeddings"),
    (60, 160, "one batch at a time"),
    (60, 317, "batches of any size"),
    (60, 417, "an answer in numbers"),
    (60, 517, "and for people"),
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
