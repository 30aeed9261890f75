"""Rows and sentences of a count on where its negatives come from, which are pulled, and which a filter suspects."""

from collections.abc import Iterator, Mapping

from cocos.reports._phrases import mean, number

# Rows of each source; the last is shown where any negative is pulled.
SOURCE_ROWS = (
    ("negatives", "negatives per query", 1),
    ("contributing", "contributing negatives", 1),
    ("push", "part of the push, %", 100),
    ("pulled", "contributing negatives that are pulled", 1),
)
# What a count and an audit say of the filter `percent`: direction, queries, and the sign of their positives.
BELOW_ZERO = (
    "{name}: the positives of {number} queries score below 0, where `percent` of the score is above the score, so "
    "that it keeps negatives above the positive; the filter `relative_margin` takes a part of the magnitude off instead"
)
# Rows of one loss or another, shown where they are not 0.
RARE_ROWS = (
    ("pulled_negatives", "contributing negatives that are pulled", 1),
    ("pushed_positives", "positives that are pushed", 1),
    ("masked", "negatives that the filter suspects", 1),
    ("masked_push", "their part of the push without the filter, %", 100),
)


def _times(value: Mapping | None, factor: float) -> dict:
    """A mean and its deviation, multiplied; None where there are none."""
    known = value or {"mean": None, "std": None}
    return {key: None if each is None else factor * each for key, each in known.items()}


def rows(directions: Mapping[str, dict]) -> Iterator[tuple[str, ...]]:
    """Yield rows of a table: label, and an entry for each direction, empty where it has no such source."""
    for key, label, factor in RARE_ROWS:
        values = [entry.get(key) for entry in directions.values()]
        if any((value or {}).get("mean") for value in values):
            yield label, *(number(_times(value, factor)) for value in values)
    for source in dict.fromkeys(name for entry in directions.values() for name in entry.get("sources", {})):
        for key, label, factor in SOURCE_ROWS:
            values = [entry.get("sources", {}).get(source, {}).get(key) for entry in directions.values()]
            if key != "pulled" or any((value or {}).get("mean") for value in values):
                yield f"{source}: {label}", *(number(_times(value, factor)) if value else "" for value in values)


def sentences(name: str, entry: dict) -> Iterator[str]:
    """Yield what a reader must know of one direction: the sources of its push, and what a filter takes."""
    sources = entry.get("sources", {})
    if len(sources) > 1:
        said = [
            f"{source} {mean(each['negatives'])} negatives"
            + ("" if each["contributing"]["mean"] is None else f", {mean(each['contributing'])} contribute")
            + ("" if each["push"]["mean"] is None else f", {mean(_times(each['push'], 100))} % of the push")
            for source, each in sources.items()
        ]
        yield f"{name}, by source: {'; '.join(said)}."
    if (entry.get("masked") or {}).get("mean") is not None:
        count, push = mean(entry["masked"]), mean(_times(entry["masked_push"], 100))
        yield f"{name}: the filter suspects {count} negatives per query, which have {push} % of the push without it."
    if below := (entry.get("below_zero") or {}).get("mean"):
        yield BELOW_ZERO.format(name=name, number=round(below * entry["queries"])) + "."
    if (entry.get("pulled_negatives") or {}).get("mean"):
        count = mean(entry["pulled_negatives"])
        yield f"{name}: {count} of the contributing negatives per query are pulled, and have no part of the push."
