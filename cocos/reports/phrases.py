"""Numbers and phrases that several tables share."""

from collections.abc import Mapping

import xarray as xr


def number(value: dict, sign: str = "±", digits: int | None = None) -> str:
    """Write a mean and its deviation, either of which may be None; 3 decimals below one and 2 above unless given."""
    if value["mean"] is None:
        return "none"
    digits = digits or (3 if abs(value["mean"]) < 1 and value["mean"] != int(value["mean"]) else 2)
    spread = "" if value["std"] is None else f" {sign} {value['std']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{spread}"


def times(value: Mapping | None, factor: float) -> dict:
    """A mean and its deviation, multiplied; None where there are none."""
    found = value or {"mean": None, "std": None}
    return {key: None if each is None else factor * each for key, each in found.items()}


def part_in_percent(value: float) -> str:
    """A part in percent, one decimal."""
    return f"{100 * value:.1f} %"


def percent(value: float) -> str:
    """A part in percent, to six digits, as an option has it."""
    return f"{100 * value:.6g} %"


def mean_of(entry: Mapping, name: str) -> float | None:
    """Mean of a number of a direction; None where there is none."""
    return (entry.get(name) or {}).get("mean")


def queries_per_batch(directions: dict) -> str:
    """Number of queries in a batch: one for all directions, or one for each where they differ."""
    sizes = dict.fromkeys(f"{round(entry['batch_queries'], 1):g}" for entry in directions.values())
    return " and ".join(sizes)


def averaging(found: dict, batch_columns: str = "") -> str:
    """State what means and deviations are over; `batch_columns` names those that are over full batches."""
    if found.get("convention", "standard") != "standard":
        return "mean ± deviation over batches"
    full = found["full_batches"]
    some = "the one full batch" if full == 1 else f"the {full} full batches"
    batches = "batches" if full == found["batches"] else some
    parts = [batch_columns] if batch_columns and found["batches"] > 1 else []
    parts += ["deviations (±)"] if full > 1 else []
    return f"means over all queries; {' and '.join(parts)} over {batches}" if parts else "means over all queries"


def geometry(found: dict, *, ranks: bool = False) -> list[str]:
    """Write alignment and uniformities of the `health` of a document, and its effective ranks: one line, or none."""
    spread = {name: each["uniformity"] for name, each in found["sides"].items() if each.get("uniformity") is not None}
    parts = [] if found.get("alignment") is None else [f"alignment {found['alignment']:.3f}"]
    parts += ["uniformity " + ", ".join(f"{value:.2f} ({name})" for name, value in spread.items())] if spread else []
    sides = found["sides"].items() if ranks and parts else ()
    parts += [f"effective rank {each['effective_rank']:.1f} of {each['dimensions']} ({name})" for name, each in sides]
    return [f"health: {'; '.join(parts)}"] if parts else []


def drawn(data: xr.Dataset) -> str:
    """State how many batches of which size were drawn, with the range of sizes where they differ."""
    direction = str(data["direction"].values[0])
    rows = {"s2s": "samples", "s2p": "samples, with all proxies"}.get(direction)
    rows = rows or ("pairs" if data.attrs["sample"] == "pairs" else "queries, each with its candidates")
    sizes = data["queries"].isel(direction=0).values.tolist()
    if len(sizes) == 1:
        text = f"1 batch of {sizes[0]} {rows}"
    elif len(set(sizes[:-1])) == 1:
        last = f" (the last of {sizes[-1]})" if len(set(sizes)) > 1 else ""
        text = f"{len(sizes)} batches of {sizes[0]} {rows}{last}"
    else:
        text = f"{len(sizes)} batches of {min(sizes)} to {max(sizes)} {rows}"
    return f"{text}, seed {data.attrs['seed']}"


def loss_call(loss: dict) -> str:
    """Write a loss with its parameters: `ntxent(temperature=0.1)`."""
    shown = {key: ",".join(map(str, value)) if isinstance(value, list | tuple) else value
             for key, value in loss["parameters"].items()}  # fmt: skip
    return f"{loss['name']}({', '.join(f'{key}={value}' for key, value in shown.items())})"
