"""One page on a model, a run or two of them, as a file that needs nothing else: `cocos report`.

A section answers one question with the table, the picture and the command of a measure; nothing is computed here that a
command would not print. Findings are those of the measures. Texts of a stranger's file enter the page escaped, and the
policy of the page allows no request and no script but its own.
"""

import base64
import hashlib
import html
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import resources
from itertools import chain, product
from numbers import Integral
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import numpy as np
import xarray as xr

import cocos
from cocos import measures, plots, reports
from cocos import results as results
from cocos.base import terminal, writing
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.counting import findings, sharpness
from cocos.counting.findings import Finding
from cocos.data.training_set import TrainingSet, annotated_rows
from cocos.embeddings import Embeddings
from cocos.embeddings.options import option_names
from cocos.measures.shared import settings
from cocos.measures.shared.prepared import loss_for
from cocos.plots import saving
from cocos.reports import drawing, layouts
from cocos.reports.documents import loss_entry, parameter_values, suspects
from cocos.reports.layouts import KNOWN_RULE
from cocos.reports.page import queries
from cocos.reports.text import Step, Table

# Severities that ask for something, the gravest first.
ASKING = ("stop", "look")
# Rows of a table that stands open on the page; a longer one unfolds.
OPEN_ROWS = 24
# Models that a page compares.
MOST_MODELS = 2
# Measures whose results the page shows.
SHOWN_MEASURES = (
    *("run", "diff", "audit", "count", "evaluate", "replay"),
    *("lorenz", "eps_curve", "temperature_curve"),
)
# Kinds of two results that are compared, and the title of the comparison.
PAIRED_KINDS, WHAT_CHANGED = {"count", "evaluate", "run"}, "What changed?"
# Settings of a result that the command has which made it.
FROM_FILES = {"count": ("loss", "eps", "batch_size", "seed"), "audit": ("loss", "batch_size", "seed"), "evaluate": ()}
# Title of a page of two.
PAGE_OF_TWO = "{} (A) and {} (B)"
# Attributes of a result that say where its numbers come from, and their names on the page.
PROVENANCE = {
    **{"checkpoint_path": "file", "checkpoint_sha256": "sha256", "checkpoint_format": "format", "split": "split"},
    **{"loss_repr": "loss", "eps": "eps", "batch_size": "batch size", "sample": "sample", "seed": "seed"},
    **{"dtype": "dtype", "device": "device", "cocos": "cocos", "torch": "torch"},
}
# Inches of a picture of the page, and of one on a phone: a column of print.
PICTURE_INCHES, PHONE_INCHES = 7.5, 3.3
# Characters of a text of the data in the page.
LONGEST_TEXT = 160
# Scores of all queries with all candidates above which the page leaves to commands what needs them all; and the rules
# of an audit that do not.
MOST_SCORED, QUICK_RULES = 10**10, ("group",)
# Batches of such a set that the page audits and replays; it counts all.
FEW_BATCHES = 256
LEFT_TO_COMMANDS = (
    "retrieval, and suspects by rules other than `group` (all {queries:,} queries with all {candidates:,} candidates: "
    "cocos evaluate {file} and cocos audit {file} take their time for it)"
)
# Words that the page uses, and what they mean.
WORDS = {
    "push, pull": "the parts of a query's gradient that move it away from its negatives, and towards its positives",
    "contribute": "a negative contributes if its share of the gradient is above eps; a query without one is idle",
    "effective number": "the number of negatives that would give the same spread if they shared the push evenly",
    "i2t, q2c, ...": "a direction: who asks stands before the 2, and who is ranked behind it",
    "suspected": "a negative that a rule takes for a positive without a label; read the pair to know",
    "stop, look": "the numbers say little until this is repaired; something asks for a change",
}
# Findings that are remarks here: on a filter that nobody asked for.
REMARKS = {"below zero"}
# Parts and times of the temperature as it is at which the page says what another would do, and of the batch size.
OTHER_SHARPNESS, OTHER_SIZES = tuple(10.0 ** (k / 3) for k in range(-3, 4)), (0.5, 2.0)
# Suspected pairs that stand open; the others unfold.
OPEN_SUSPECTS = 10
# What the pictures of other settings do not say.
FROZEN_SAYS = (
    "Embeddings frozen: this is the gradient that another setting would have at this checkpoint, not what training "
    "with it would give."
)
# Suspected pairs and queries that the page lists; all of them are written by the commands beside them.
MOST_SUSPECTS, LISTED_QUERIES, LISTED_CANDIDATES = 50, 12, 10


@dataclass(frozen=True)
class Picture:
    """A picture of the page: an SVG file inside an address, its words, its size in pixels, and one for a phone."""

    source: str
    alt: str
    width: int
    height: int
    narrow: "Picture | None" = None

    @property
    def listed(self) -> str:
        """The address as a list of sources has it, without spaces."""
        return self.source.replace(" ", "%20").replace("\n", "%0A")


@dataclass(frozen=True)
class Detail:
    """What unfolds below a section."""

    summary: str
    tables: Sequence[Table]


@dataclass(frozen=True)
class Suspect:
    """A suspected pair, to be judged on the page."""

    query: int
    candidate: int
    query_text: str
    candidate_text: str
    push: str
    score: str
    rules: str

    @property
    def key(self) -> str:
        """Both rows, as in the list that `cocos audit` writes."""
        return f"{self.query},{self.candidate}"


@dataclass(frozen=True)
class PageSection:
    """An answer of the page.

    Args:
        key: anchor.
        title: of the section.
        says: sentences above it.
        pictures: drawn by `cocos.plots`.
        tables: of `cocos.reports`.
        details: what unfolds.
        suspects: pairs to be judged.
        command: that prints the same numbers.
    """

    key: str
    title: str
    says: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    details: Sequence[Detail] = ()
    suspects: Sequence[Suspect] = ()
    command: str = ""


@dataclass
class Page:
    """All that the page shows.

    Args:
        title: names of the files.
        about: the data, the loss, the batches.
        sections: in their order.
        results: whose findings the page has, with the key of the section where they show.
        missing: what could not be measured, in sentences.
        curve: counts at each eps, for the slider.
        queries: document of `cocos.reports.page.queries`.
    """

    title: str
    about: Sequence[str] = ()
    sections: list[PageSection] = field(default_factory=list)
    results: list[tuple[str, xr.Dataset]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    curve: Mapping[str, Any] | None = None
    queries: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self):
        kinds = [_measure_of(data) for _, data in self.results]
        titles = {each.key: each.title for each in self.sections}
        several = [
            titles[key] if kinds.count(kind) > 1 else "" for (key, _), kind in zip(self.results, kinds, strict=True)
        ]
        every = [
            (_named(each, of), key)
            for of, (key, data) in zip(several, self.results, strict=True)
            for each in _findings_of(data)
        ]
        # One that two results have is shown once, where it was first found.
        self._findings = list({(each.kind, each.sentence): (each, key) for each, key in reversed(every)}.values())[::-1]

    def found(self) -> list[tuple[Finding, str]]:
        """Findings that ask for something, the gravest first, each with the key of its section."""
        asking = [(each, key) for each, key in self._findings if _asks(each)]
        return sorted(asking, key=lambda pair: ASKING.index(pair[0].severity))

    def grouped(self) -> list[list[tuple[Finding, str]]]:
        """The same, those of one kind together, such as of both directions: they have one advice and one section."""
        together: dict[object, list[tuple[Finding, str]]] = {}
        files = {key: _typed_path(data.attrs) for key, data in self.results}
        for each, key in ((_of_file(one, files.get(key, "")), key) for one, key in self.found()):
            together.setdefault((each.kind, each.cure, key), []).append((each, key))
        return list(together.values())

    def remarks(self) -> list[str]:
        """Texts of the other findings, each once; the table of a comparison has its changes."""
        others = [each for each, _ in self._findings if not _asks(each) and each.kind != "changed"]
        return list(dict.fromkeys([*(each.text for each in others), *self.missing]))

    @property
    def severity(self) -> str:
        """Of the gravest finding; of a comparison, whether the second finds less than the first."""
        if self._compared():
            (data,) = (data for _, data in self.results if _measure_of(data) == "diff")
            ranked = [str(name) for name in data["metric"].values if re.fullmatch(r"R@\d+|MRR", str(name))]
            lower = (data["high"].sel(metric=ranked) < 0).any()  # positives of the second rank lower, in a direction
            return "look" if lower else "note"
        return next((each.severity for each, _ in self.found()), "ok")

    @property
    def verdict(self) -> str:
        """One sentence: the gravest finding, and how many others there are."""
        found = self.grouped()
        if compared := self._compared():
            return _capital(compared)
        if not found:
            fine = next((each.sentence for each, _ in self._findings if each.severity == "ok"), "")
            return _capital(fine) or "No problem was found."
        more = len(found) - 1
        also = f" {more} more finding{'' if more == 1 else 's'} below." if more else ""
        said = _capital(found[0][0][0].sentence, [each.title for each in self.sections])
        return f"{said}.{also}".replace("..", ".")

    @property
    def advice(self) -> str:
        """What to try first; empty where the verdict says it, or where there is nothing to change."""
        found = [] if self._compared() else self.grouped()
        return _capital(found[0][0][0].cure) if found else ""

    def _compared(self) -> str:
        """What changed, where the page is a comparison and nothing else: the sentence of it, or the first change."""
        kinds = [_measure_of(data) for _, data in self.results]
        if "diff" not in kinds or not {"diff", "count", "evaluate"}.issuperset(kinds):
            return ""
        key, data = self.results[kinds.index("diff")]
        if np.isfinite(data["low"].sel(metric=data.attrs["by"])).any():
            return next(each.says[0] for each in self.sections if each.key == key)
        changed = (each.sentence for each, _ in self._findings if each.kind == "changed")
        return next(changed, "no change between the two is resolved.")

    def save(self, path: Path | str) -> Path:
        """Write the page whole or not at all."""
        path = writable(Path(path))
        return writing.write(path, self.html().encode(), "page")

    def _repr_html_(self) -> str:
        may, text = "allow-scripts allow-downloads", html.escape(self.html())
        return f'<iframe sandbox="{may}" width="100%" height="800" srcdoc="{text}"></iframe>'

    def document(self) -> dict[str, Any]:
        """The verdict and all findings as plain data."""
        return {
            "verdict": self.verdict,
            "findings": [each.document() | {"section": key} for each, key in self._findings],
        }

    def html(self) -> str:
        """The page as one HTML document."""
        files = resources.files("cocos.reports.page")
        css, *own = ((files / name).read_text("utf-8") for name in ("page.css", "page.js", "queries.js"))
        script = "\n".join(own)
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
        template = environment.from_string((files / "page.html").read_text("utf-8"))
        suspects = any(each.suspects for each in self.sections)
        provenance = _provenance([data.attrs for _, data in self.results])
        judged = [(each.key, each.push, each.query_text) for section in self.sections for each in section.suspects]
        key = hashlib.sha256(json.dumps([provenance, judged]).encode()).hexdigest()[:16]
        any_data = self.curve or self.queries or suspects
        data = _embedded({"curve": self.curve, "key": key}) if any_data else ""
        return template.render(
            **{
                name: getattr(self, name)
                for name in ("title", "about", "sections", "severity", "verdict", "advice", "curve")
            },
            headline=not self._compared(),
            words=WORDS,
            findings=self.grouped(),
            remarks=self.remarks(),
            open_suspects=OPEN_SUSPECTS,
            css=css,
            script=script,
            data=data,
            queries=_embedded(self.queries) if self.queries else "",
            policy=_policy(css, script),
            provenance=Table(("", ""), provenance, left=True),
            version=cocos.__version__,
        )


def _policy(css: str, script: str) -> str:
    """Content security policy: pictures of the page, its own style and its own script, by their hashes."""
    own = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (css, script))
    style, code = (f"'sha256-{each}'" for each in own)
    rules = ("default-src 'none'", "img-src data:", f"style-src {style}", f"script-src {code}")
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))


def _embedded(document: object) -> str:
    """JSON that ends no script element, whatever its texts say."""
    return queries.packed(document).translate({ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def picture(kind: str, found: Sequence[xr.Dataset]) -> Picture:
    """Draw Datasets as `cocos plot` does."""
    return _pictured(partial(drawing.draw, kind, list(found)), kind)


def _pictured(draw: Callable[..., object], kind: str) -> Picture:
    """A picture of the page, and as it is drawn in the width of a phone, whose texts can be read there."""
    wide, narrow = (_drawn(partial(draw, width=width), kind) for width in (PICTURE_INCHES, PHONE_INCHES))
    return replace(wide, narrow=narrow)


def _drawn(draw: Callable[[Path], object], kind: str) -> Picture:
    """A picture as it is drawn into a file."""
    with tempfile.TemporaryDirectory(prefix="cocos-") as folder:
        path = Path(folder) / "picture.svg"
        draw(path)
        svg = path.read_text("utf-8")
    words = re.search(r"<dc:description>(.*?)</dc:description>", svg, re.DOTALL)
    width, height = (round(float(re.search(rf'{name}="([\d.]+)pt"', svg)[1]) / 0.75) for name in ("width", "height"))
    shown = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    shown = re.sub(r"\n\s*", "\n", shown).strip()
    source = f"data:image/svg+xml,{quote(shown, safe=' =:/;,()!*@$+?[]{}|^~`<>')}".replace('"', "%22")
    return Picture(source, html.unescape(words[1]) if words else kind, width, height)


def _asks(each: Finding) -> bool:
    """Whether a finding asks for something; a change that is resolved may be the one that was wanted."""
    return each.severity in ASKING and each.kind not in {"changed", *REMARKS}


def _findings_of(data: xr.Dataset | dict[str, xr.Dataset]) -> list[Finding]:
    """The findings of a result; those of one loss among several are labelled by it."""
    if not isinstance(data, dict):
        return findings.of(data)
    return [_named(each, label) for label, one in data.items() for each in findings.of(one)]


def _typed_path(attrs: Mapping[str, Any]) -> str:
    """The file of a result as it is typed in a shell; empty where it is none, or several."""
    path = str(attrs.get("checkpoint_path", ""))
    return shlex.quote(path) if path and path.isprintable() else ""


def _of_file(each: Finding, path: str) -> Finding:
    """A finding whose advice names the file that it is about."""
    return replace(each, cure=re.sub(r"\bFILE\b", lambda _: path, each.cure)) if path else each


def _named(each: Finding, result: str) -> Finding:
    """A finding of one loss or one result among several, which names it."""
    return replace(each, sentence=f"{result}: {each.sentence}") if result else each


def writable(path: Path) -> Path:
    """Refuse a path of a page that cannot be written, before anything is computed."""
    if path.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"output {path}: suffix {path.suffix!r}, expected .html")
    return writing.output(path)


def _capital(text: str, names: Sequence[str] = ()) -> str:
    """A sentence with a capital; the name of a direction, such as i2t, or of a file stays as it is."""
    named = re.match(r"\w+2\w+\b", text) or text.startswith(tuple(f"{name}: " for name in names))
    return text if named else text[:1].upper() + text[1:]


@dataclass(frozen=True)
class _Work:
    """Measures of one checkpoint; one that cannot be measured leaves its reason."""

    source: Checkpoint | Embeddings
    loss: Any
    options: Mapping[str, Any]
    start: Callable[[str], Any] | None
    typed: Callable[[Step], Step | str]
    missing: list[str]

    def asked(self, measure: str, **own: Any) -> xr.Dataset:
        """The Dataset of a measure."""
        return getattr(measures, measure)(self.source, **self.known(measure) | own)

    def known(self, measure: str) -> dict[str, Any]:
        """The options that a measure takes."""
        known = option_names(getattr(measures, measure))
        given = {name: value for name, value in self.options.items() if name in known}
        given |= {"loss": self.loss} if "loss" in known and measure != "diff" else {}
        return given | ({"progress": self.start} if "progress" in known else {})

    def tried(self, measure: str, **own: Any) -> xr.Dataset | None:
        """The same, or None where it does not apply."""
        try:
            return self.asked(measure, **own)
        except InputError as error:
            self.missing.append(f"{measure.replace('_', ' ')} ({error})")
            return None

    def queries(self, items: Any) -> dict[str, Any] | None:
        """The queries one by one, or None where the loss does not say what pushes each."""
        given = {name: value for name, value in self.known("contributors").items() if name not in {"loss", "progress"}}
        try:
            return queries.document(self.source, self.loss, given.pop("eps", 0.01), items, **given)
        except InputError as error:
            self.missing.append(f"queries ({error})")
            return None

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Numbers of queries and candidates."""
        frozen = isinstance(self.source, Checkpoint)
        made = self.source.embed(self.options.get("split", "train")) if frozen else self.source
        return {"queries": len(made.query), "candidates": len(made.candidate)}

    @property
    def large(self) -> dict[str, int]:
        """The same of a set that is too large to compare all of them; empty for others."""
        return self.sizes if self.sizes["queries"] * self.sizes["candidates"] > MOST_SCORED else {}

    def command(self, name: str, *first: str, **options: Any) -> str:
        """The line that prints the same numbers; empty for embeddings in memory."""
        path = self.source.path if isinstance(self.source, Checkpoint) else None
        if path is None:
            return ""
        return _line(self.typed(Step(name, (*first, str(path)), options)))

    def section(self, key: str, title: str, kind: str, command: str, **own: Any) -> list[PageSection]:
        """The section of a measure with its table and its picture; none where it does not apply."""
        data = self.tried(kind, **own)
        if data is None:
            return []
        drawn = [picture(kind, [data])] if kind in plots.__all__ else []
        shown = reports.table(kind, data)
        says = () if drawn else shown.head[:1]  # the title of the picture says it
        return [_answered(key, title, says, drawn, shown, command)]


def _answered(
    key: str, title: str, says: Sequence[str], pictures: Sequence[Picture], shown: Table, command: str = ""
) -> PageSection:
    """A section of one table, which unfolds where it is long."""
    table = [replace(shown, head=())]
    if len(shown.rows) <= OPEN_ROWS:
        return PageSection(key, title, says, pictures, table, command=command)
    return PageSection(key, title, says, pictures, (), [Detail(f"All {len(shown.rows)} rows", table)], command=command)


def of_model(
    source: Checkpoint | Embeddings,
    loss: Any = None,
    *,
    split: str = "train",
    start: Callable[[str], Any] | None = None,
    typed: Callable[[Step], Step | str] = lambda step: step,
    **options: Any,
) -> Page:
    """The page of embeddings, or of a checkpoint, which is encoded once.

    Args:
        source: embeddings of the training set, or a checkpoint.
        loss: a loss, or its name; None: the one that the checkpoint recorded, or `ntxent`.
        split: of the checkpoint's data.
        start: progress, name of the work -> callback.
        typed: adds the options that were typed to a command of the page.
        **options: of the measures, such as those of `Sampling`.

    Examples:
        >>> from cocos.reports import page
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> made = page.of_model(cocos.Embeddings(rows, rows + 0.1), batch_size=32)
        >>> made.sections[0].title, made.html()[:15]
        ('How many negatives?', '<!doctype html>')
    """
    frozen = source if isinstance(source, Checkpoint) else None
    loss = loss_for(loss, source)
    source = drawing.once(frozen) if frozen else source
    given = options | {"split": split} if frozen else options
    work = _Work(source, loss, given, start, typed, [])
    counted = work.asked("count")
    curve = work.tried("eps_curve", eps=None)
    items = frozen.items(split) if frozen else _annotated(source)
    single = work.queries(items)
    large = work.large
    if large:
        work.missing.append(
            LEFT_TO_COMMANDS.format(**large, file=_typed_path({"checkpoint_path": frozen.path}) if frozen else "FILE")
        )
    few = {"batches": FEW_BATCHES} if large and options.get("batches") is None else {}
    audited = work.tried("audit", **few, **({"rules": QUICK_RULES} if large else {}))
    pictures = [picture("count", [counted]), *([picture("eps_curve", [curve])] if curve is not None else [])]
    shown = reports.table("count", counted)
    told = {text for each in _findings_of(counted) for text in (each.sentence, each.text)}
    says = [line for line in shown.head if line not in told][:2]
    sections = [
        PageSection("how-many", "How many negatives?", says, pictures, [replace(shown, head=(), notes=())],
                command=work.command("count")),
        *work.section("how-unequal", "How unequal?", "lorenz", work.command("plot", "lorenz", **few), **few),
        *_what_if(work, counted, **few),
        *_suspects(work, audited, items),
        *_queries(work, single),
        *(() if large else work.section("retrieval", "What does it find?", "evaluate", work.command("evaluate"))),
    ]  # fmt: skip
    results = [("how-many", counted), *([("suspects", audited)] if audited is not None else [])]
    name = frozen.path.name if frozen else "Embeddings"
    about = [f"{work.sizes['queries']:,} queries, {work.sizes['candidates']:,} candidates"]
    about += [str(counted.attrs[key]) for key in ("loss_repr",)] + [f"eps = {float(counted.attrs['eps']):g}"]
    about += [f"{counted.sizes['batch']:,} batches of {counted.attrs['batch_size']} {counted.attrs['sample']}"]
    slider = None if curve is None else _slider(curve, counted)
    about += [f"the count is of all batches, and the other sections are of {FEW_BATCHES} of them"] if few else []
    about += [f"one by one: {said}"] if single and (said := queries.header(single)) else []
    return Page(name, about, sections, results, work.missing, slider, single)


def report(
    *sources: Any,
    out: Path | str | None = None,
    loss: Any = None,
    start: Callable[[str], Any] | None = None,
    typed: Callable[[Step], Step | str] = lambda step: step,
    files: Sequence[Path] = (),
    **options: Any,
) -> Page:
    """Make one page of embeddings or a checkpoint, of results, or of two models.

    Args:
        sources: embeddings or a checkpoint; two of them to compare; or Datasets of `count`, `audit`, `run`, `diff` and
            other measures with a plot.
        out: HTML file that is written; None: none.
        loss: a loss, or its name, or a list of one for each model; None: the one that a checkpoint recorded, or
            `ntxent`.
        start: progress, name of the work -> callback.
        typed: adds the options that were typed to a command of the page.
        files: of results, which give them their names and commands.
        **options: of the measures, such as those of `Sampling`.

    Raises:
        InputError: nothing to show, sources of different kinds, more than two models, or `out` cannot be written.

    Examples:
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> page = cocos.report(cocos.Embeddings(rows, rows + 0.1), batch_size=32)
        >>> page.save("report.html")  # doctest: +SKIP
    """
    if out is not None:
        writable(Path(out))
    page = _page_of(sources, loss, start, typed, files, options)
    if out is not None:
        page.save(out)
    return page


def _page_of(
    sources: Sequence[Any],
    loss: Any,
    start: Callable[[str], Any] | None,
    typed: Callable[[Step], Step | str],
    files: Sequence[Path],
    options: Mapping[str, Any],
) -> Page:
    """Make the page of `report`."""
    compares = not any(isinstance(each, dict) for each in sources)
    by_source = [list(each.values()) if isinstance(each, dict) else [each] for each in sources]  # a result a loss
    files = [file for file, datasets in zip(files, by_source, strict=False) for _ in datasets]
    sources = [each for datasets in by_source for each in datasets]
    made = [each for each in sources if isinstance(each, xr.Dataset)]
    if not sources or 0 < len(made) < len(sources) or len(sources) - len(made) > MOST_MODELS:
        number = [(len(sources) - len(made), "model"), (len(made), "result")]
        given = " and ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in number if n) or "nothing"
        raise InputError(f"report: {given}, expected a model, two models, or results alone")
    if made:
        kinds = [_measure_of(each) for each in made]
        names = [each.name for each in files] or [_title(*each) for each in zip(made, kinds, strict=True)]
        several = dict(zip(plots.wording.numbered(names), made, strict=True))
        compared, why = _between(several, kinds) if compares else ({}, [])
        commands = dict(
            zip(several, (_command(*each, typed) for each in zip(files, made, kinds, strict=False)), strict=False)
        )
        if compared and files:
            commands[WHAT_CHANGED] = _line(typed(Step("diff", tuple(map(str, files)))))
        shown = of_results(compared | several, ["diff"] * len(compared) + kinds, commands)
        shown.missing.extend(why)
        return replace(shown, title=PAGE_OF_TWO.format(*several)) if compared else shown
    chosen = loss if isinstance(loss, list) else [loss] * len(sources)
    if len(sources) == 1:
        return of_model(sources[0], chosen[0], start=start, typed=typed, **options)
    names = [each.path.name if isinstance(each, Checkpoint) else "embeddings" for each in sources]
    names = plots.wording.numbered(names)
    held = [drawing.once(each) if isinstance(each, Checkpoint) else each for each in sources]
    works = [
        _Work(each, loss_for(one, each), options, start, typed, []) for each, one in zip(held, chosen, strict=True)
    ]
    compared = measures.diff(
        *held, tuple(each.loss for each in works), **works[0].known("diff") | {"names": tuple(names)}
    )
    shown = {WHAT_CHANGED: compared} | {name: work.asked("count") for name, work in zip(names, works, strict=True)}
    commands = {name: work.command("count") for name, work in zip(names, works, strict=True)}
    if all(isinstance(each, Checkpoint) for each in held):
        commands[WHAT_CHANGED] = _line(typed(Step("diff", tuple(str(each.path) for each in held))))
    return replace(of_results(shown, ["diff", "count", "count"], commands), title=PAGE_OF_TWO.format(*names))


def _line(step: Step | str) -> str:
    """A command as it is typed; none where a name in it cannot be printed."""
    return said if (said := str(step)).isprintable() else ""


def _command(file: Path, data: xr.Dataset, kind: str, typed: Callable[[Step], Step | str]) -> str:
    """The command that prints a run, or that made a result of a file; empty for others."""
    if kind == "run" and (file.is_dir() or file.suffix == ".jsonl"):
        return _line(typed(Step("run", (str(file),))))
    path = str(data.attrs.get("checkpoint_path", ""))
    if kind not in FROM_FILES or not path or "\n" in path or "\n" in str(data.attrs.get("loss", "")):
        return ""
    options = {name: data.attrs[name] for name in FROM_FILES[kind] if name in data.attrs}
    if "loss" in options:
        options["param"] = parameter_values(loss_entry(data.attrs)["parameters"])
    return _line(Step(kind, (path,), options, carry=False))


def _between(several: Mapping[str, xr.Dataset], kinds: Sequence[str]) -> tuple[dict[str, xr.Dataset], list[str]]:
    """The comparison of two results of one kind, by its title, or why they have none; of others neither."""
    if len(several) != MOST_MODELS or len(set(kinds)) > 1 or not PAIRED_KINDS.issuperset(kinds):
        return {}, []
    (first, one), (second, other) = several.items()
    try:
        return {WHAT_CHANGED: measures.diff(one, other, names=(first, second))}, []
    except InputError as error:
        return {}, [f"what changed ({error})"]


def _title(data: xr.Dataset, kind: str) -> str:
    """The title of a result; of a run over the checkpoints of a folder, with its name."""
    title = str(data.attrs.get("title", kind))
    folder = Path(str(data.attrs.get("checkpoint_path", "")).partition("\n")[0]).parent.name
    return f"{title}, {terminal.clean(folder)}" if kind == "run" and folder else title


def _annotated(embeddings: Embeddings) -> TrainingSet | None:
    """Names and pictures of embeddings in memory; None where they have none."""
    return annotated_rows(embeddings) if embeddings.names or embeddings.pictures else None


def _measure_of(data: xr.Dataset) -> str:
    """Return the measure of a result that the page shows."""
    measure = data.attrs.get("measure")
    if measure not in SHOWN_MEASURES:
        raise InputError(
            f"report: {data.attrs.get('title', 'a result')!r} is of no measure that the page shows, which are "
            f"{', '.join(SHOWN_MEASURES)}; give the embeddings themselves"
        )
    return measure


def of_results(
    several: Mapping[str, xr.Dataset], kinds: Sequence[str], commands: Mapping[str, str] | None = None
) -> Page:
    """The page of results, such as runs and a comparison: a section for each.

    Args:
        several: title -> Dataset.
        kinds: the measure of each.
        commands: title -> the line that prints the same numbers.
    """
    sections, kept = [], []
    for place, ((title, data), kind) in enumerate(zip(several.items(), kinds, strict=True)):
        key, shown = f"{kind}-{place}", reports.table(kind, data)
        drawn = [_curves(data)] if kind == "run" else [picture(kind, [data])] if kind in plots.__all__ else []
        told = {text for each in _findings_of(data) for text in (each.sentence, each.text)}
        told |= {layouts.watched(data)} if kind == "run" else set()  # those absent or unseen say it one by one
        says = [line for line in shown.head if line not in told]
        sections.append(_answered(key, title, says, drawn, shown, (commands or {}).get(title, "")))
        if kind == "diff" and (moved := reports.tables("diff", data)[1:]):
            sections.append(_moved(f"moved-{place}", moved))
        kept.append((key, data))
    return Page(", ".join(several), (), sections, kept)


def _moved(key: str, several: Sequence[Table]) -> PageSection:
    """The queries that changed most between two results, of each direction."""
    says = ("The intervals above are of the means; these are single queries.",)
    details = [Detail(" ".join(each.head), [replace(each, head=each.notes)]) for each in several]
    return PageSection(key, "Which queries moved?", says, details=details)


def _slider(curve: xr.Dataset, counted: xr.Dataset) -> dict[str, Any]:
    """Exact counts at each eps, and the place of the one that was counted."""
    eps = curve["eps"].values
    sides = {
        str(name): {
            "contributing": curve["contributing_all"].sel(direction=name).values.tolist(),
            "idle": curve["idle_fraction"].sel(direction=name).values.tolist(),
        }
        for name in curve["direction"].values
    }
    start = int(np.abs(np.log(eps) - np.log(max(float(counted.attrs["eps"]), float(eps[0])))).argmin())
    return {"eps": eps.tolist(), "directions": sides, "order": list(sides), "start": start}


def _what_if(work: _Work, counted: xr.Dataset, **few: Any) -> list[PageSection]:
    """Another temperature and batch size: effective numbers and idle queries, and the paired changes of half and twice.

    Mining rules and other losses are left to the command, unless the loss has no temperature.
    """
    size = counted.attrs["batch_size"]
    rows = int(counted["query_index"].max()) + 1
    others = [int(part * size) for part in OTHER_SIZES] if isinstance(size, Integral) else []
    sizes = [size, *(each for each in others if 4 <= each <= rows)]
    curves = _other_sharpness(work, sizes, **few)
    what = None
    if curves:
        asked, _ = settings.usual(work.loss, None)
        name = sharpness.parameter_of(work.loss)
        what = [f"{name}={','.join(f'{one:.6g}' for one in asked[name])}"]
        what += [f"batch_size={','.join(map(str, sizes[1:]))}"] if sizes[1:] else []
    data = work.tried("replay", what=what, **few)
    if data is None and not curves:
        return []
    shown = reports.table("replay", data) if data is not None else Table((), ())
    says = (FROZEN_SAYS, *shown.head[: counted.sizes["direction"]])
    drawn = [_pictured(partial(_draw_other_sharpness, curves), "what if")] if curves else [picture("replay", [data])]
    details = [Detail("Every temperature and batch size", _tables_of_sharpness(curves))] if curves else []
    command = work.command("whatif", **({"what": what} if what else {}), **few)
    return [PageSection("what-if", "What if?", says, drawn, [replace(shown, head=())], details, command=command)]


def _other_sharpness(work: _Work, sizes: Sequence[int | str], **few: Any) -> dict[str, xr.Dataset]:
    """The curve of each batch size over the temperature or scale, the one as it is first; none of other losses."""
    own = next((getattr(work.loss, name) for name in ("temperature", "scale") if hasattr(work.loss, name)), None)
    values = None if own is None else [part * float(own) for part in OTHER_SHARPNESS]
    found = {}
    for size in sizes:
        data = work.tried("temperature_curve", values=values, batch_size=size, **few)
        if data is None:
            break
        found[f"batches of {size}" + (f" ({settings.AS_IT_IS})" if size == sizes[0] else "")] = data
    return found


def _draw_other_sharpness(curves: Mapping[str, xr.Dataset], path: Path, width: float) -> object:
    """Effective numbers and idle queries of each direction against the temperature, a line for each batch size."""
    first, panels = next(iter(curves.values())), []
    parameter, own = first.attrs["parameter"], first.attrs["own"]
    shown = (
        ("effective", "effective", lambda value: f"{value:.3g} effective negatives"),
        ("idle", "idle_fraction", lambda value: f"{100 * value:.3g} % of the queries idle"),
    )
    for side, (show, key, said) in product(map(str, first["direction"].values), shown):
        some = [each.sel(direction=[side]) for each in curves.values()]
        at = said(float(some[0][key][0].sel(value=own, method="nearest")))
        panels.append(partial(_curve_panel, some, [*curves], show, f"{side}: {at} at {parameter} {own:g}"))
    return saving.save_panels(panels, path, width=width, columns=2 if width > PHONE_INCHES else 1)


def _curve_panel(some: Sequence[xr.Dataset], names: Sequence[str], show: str, title: str, ax: Any) -> None:
    plots.temperature_curve(some, names=names, show=show, ax=ax)
    ax.set_title(title, fontsize="medium")


def _tables_of_sharpness(curves: Mapping[str, xr.Dataset]) -> list[Table]:
    """Numbers of the curves, a table for each direction."""
    first, made = next(iter(curves.values())), []
    columns = tuple(f"{name}: {what}" for name in curves for what in ("effective", "idle %"))
    for side in first["direction"].values:
        some, rows = [each.sel(direction=side) for each in curves.values()], []
        for place, value in enumerate(first["value"].values):
            mark = f" ({settings.AS_IT_IS})" if np.isclose(value, first.attrs["own"]) else ""
            at = [each.isel(value=place) for each in some]
            cells = ((f"{float(one['effective']):.3g}", f"{100 * float(one['idle_fraction']):.1f}") for one in at)
            rows.append((f"{value:.3g}{mark}", *chain.from_iterable(cells)))
        made.append(Table((f"{side}, {first.attrs['parameter']}", *columns), tuple(rows)))
    return made


def _said(text: Callable[[int], str] | None, row: int) -> str:
    return "" if text is None else terminal.bounded(terminal.clean(" ".join(text(row).split())), LONGEST_TEXT)


def _suspects(work: _Work, data: xr.Dataset | None, items: Any) -> list[PageSection]:
    """Pairs to read, the largest push first, with their texts where these are known."""
    if data is None:
        return []
    texts = items.texts(data.attrs["asks"]) if items else (None, None)
    some = []
    unread = [entry for entry in suspects(data) if KNOWN_RULE not in entry["rules"]]
    for entry in unread[:MOST_SUSPECTS]:
        query, candidate = int(entry["query"]), int(entry["candidate"])
        said = _said(texts[0], query), _said(texts[1], candidate)
        push, score = f"{100 * entry['pair_part']:.3g} %", f"{entry['score']:.3f}"
        some.append(Suspect(query, candidate, *said, push, score, ", ".join(entry["rules"])))
    shown = reports.table("audit", data)
    section = _answered("suspects", "False negatives?", (), [picture("audit", [data])], shown)  # findings say it
    return [replace(section, suspects=some, command=work.command("audit", out="suspects.json"))]


def _queries(work: _Work, single: Mapping[str, Any] | None) -> list[PageSection]:
    """The queries whose heaviest negative has most of their push, and what pushes them."""
    if single is None:
        return []
    side = single["directions"][0]
    asks, ranked = (single["rows"][min(side[name], len(single["rows"]) - 1)] for name in ("asks", "ranked"))
    some = sorted((each for each in side["queries"] if each["push"] > 0), key=lambda each: -each["hardest"])
    details = []
    for each in some[:LISTED_QUERIES]:
        listed = [
            (_row(j, ranked), f"{100 * part:.1f}", f"{score:.3f}") for j, part, score in each["top"][:LISTED_CANDIDATES]
        ]
        pulled = [(f"positive: {_row(j, ranked)}", "", f"{score:.3f}") for j, _, score in each["positives"][:1]]
        table = Table(("candidate", "% of the push", "score"), tuple(pulled + listed), left=True)
        details.append(Detail(_row(each["row"], asks), [table]))
    if not details:
        return []
    name = side["name"]
    says = (f"The {len(details)} queries of {name} whose heaviest negative has the largest part of their push.",)
    command = work.command("plot", "contributors", row=some[0]["row"], direction=name)
    return [PageSection("queries", "Which queries?", says, details=details, command=command)]


def _row(row: int, shown: Mapping[str, Mapping[str, str]]) -> str:
    """A row by its number and, where it is known, its text."""
    said = shown.get(str(row), {}).get("text", "")
    return f"row {row}{said and ': '}{said}"


def _curves(data: xr.Dataset) -> Picture:
    from cocos.plots.run import shown

    panels = [partial(plots.run, data, show=name) for name in shown([data])]

    def draw(path: Path, width: float) -> object:
        return saving.save_panels(panels, path, width=width, columns=2 if width > PHONE_INCHES else 1)

    return _pictured(draw, "run")


def _provenance(several: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Where the numbers come from: each file once, and each of its values once."""
    files: dict[object, dict[str, dict[str, None]]] = {}
    for attrs in several:
        file = files.setdefault((attrs.get("checkpoint_path"), attrs.get("checkpoint_sha256")), {})
        for key, name in PROVENANCE.items():
            lines = filter(None, str(attrs.get(key, "")).splitlines())  # a line for each checkpoint of a run
            if said := terminal.bounded(terminal.clean(", ".join(lines))):
                file.setdefault(name, {})[said] = None
    return tuple((name, ", ".join(values)) for file in files.values() for name, values in file.items())
