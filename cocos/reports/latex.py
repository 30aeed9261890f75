"""The columns of the published Tables 3 to 5 in LaTeX."""

import xarray as xr

from cocos import results
from cocos.base import terminal
from cocos.counting import findings, shares
from cocos.reports import documents
from cocos.reports.phrases import averaging, drawn, number, queries_per_batch

TRIPLET_COLUMNS = (("contributing_mean", "C^{A}"), ("contributing_sum", "C^{B}"), ("idle", "C^{0}"))
# Columns of each loss, and their symbols: Bleeker & de Rijke 2022, Tables 3 (triplet), 4 (NT-Xent) and 5 (SmoothAP).
PUBLISHED_COLUMNS = {
    "triplet": TRIPLET_COLUMNS,
    "triplet_sh": TRIPLET_COLUMNS,
    "ntxent": (("contributing_all", "C^{qv-}"), ("weight_above", "W^{qv-}"), ("weight_positive", "W^{qv+}")),
    "smoothap": (("eq7_mean", "C^{q}"), ("eq7_idle", "C^{0}")),
}
# Signs that a font of pdfLaTeX lacks.
SIGNS = {
    **{"α": r"$\alpha$", "λ": r"$\lambda$", "τ": r"$\tau$", "Δ": r"$\Delta$", "δ": r"$\delta$"},
    **{"√": r"$\surd$", "²": r"$^2$", "±": r"$\pm$", "−": "$-$"},
}


def latex(data: xr.Dataset | dict[str, xr.Dataset], label: str) -> str:
    r"""Write the published columns of a loss as a LaTeX tabular; other losses get those of the triplet loss.

    Several losses have a tabular each, one after the other.
    """
    if isinstance(data, dict):
        return "\n\n".join(latex(one, label) for one in data.values())
    summary = documents.count(data)
    columns = PUBLISHED_COLUMNS.get(summary["loss"]["name"], TRIPLET_COLUMNS)
    directions = summary["directions"]
    wide = len(columns)
    top = " & ".join(rf"\multicolumn{{{wide}}}{{c}}{{{escaped(name)}}}" for name in directions)
    names = " & ".join(f"${symbol}$" for _ in directions for _, symbol in columns)
    entries = [number(entry[key], sign=r"\pm", digits=2) for entry in directions.values() for key, _ in columns]
    cells = " & ".join(f"${each}$" for each in entries)
    return "\n".join([
        f"% cocos {summary['cocos']}: {data.attrs['loss_repr']}, eps {summary['eps']:g}, "
        f"{summary['convention']} convention, {drawn(data)}",
        *(f"% {line}" for line in findings.first(data.attrs)),
        f"% {averaging(summary, 'C^B, C^0')}; C^0 of {queries_per_batch(directions)} queries in a batch",
        *([f"% {file['path']} sha256 {file['sha256']}"] if (file := summary["checkpoint"])["path"] else []),
        *([f"% {about}"] if (about := shares.about_weights(data.attrs)) else []),
        *(f"% {line}" for line in results.lines(data.attrs, "footnotes")),
        rf"\begin{{tabular}}{{l{'r' * (wide * len(directions))}}}",
        r"\toprule",
        rf" & {top} \\",
        rf" & {names} \\",
        r"\midrule",
        rf"{escaped(label)} & {cells} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ])


def escaped(text: str) -> str:
    """Escape a text so that LaTeX prints it literally; the signs of these tables become formulae."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | SIGNS
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in terminal.clean(text))
