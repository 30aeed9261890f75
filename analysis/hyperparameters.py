"""What the warp's α, k1, k2 and δ do to retrieval among unseen characters, one at a time around one setting.

A point is a seed, the line their mean; the band is what plain softmax over distances, t, gets from the same seeds.
"""

import seaborn as sns
import xarray as xr

import omniglot
from cocos import losses, measures
from cocos.statistics import holm, paired
from proxy_networks import one_thread, recall, trained

PUBLISHED = "DeMoor & Prevost 2024, Figs. 6 (α), 7 (k1 and k2) and 8 (multiplier of Δ)"
DIFFERS = (
    "other data, a small network and few epochs; the settings vary one at a time, so interactions are not seen. The "
    "ranges "
    "of α and δ here are narrower than those of section IV-D, so the fall that it describes beyond them cannot be seen"
)
SAID = (  # DeMoor & Prevost 2024, section IV-D, on Figs. 6 to 8, in its words
    "R@1 “increases, begins to stabilize, then drops off” with α from 0 to 95; it is higher “when neither k1 nor k2 "
    "are "
    "1.0”; with k and Δ multiplied by 1 to 5.5 it “improves, past a point drops, then plateaus”"
)
INPUTS = (omniglot.FILE,)
SIZE = (11.4, 8.2)
CENTRE = {"alpha": 8.0, "k1": 0.65, "k2": 1.5, "delta": 1.0}  # the slopes of Fig. 3d; δ of eq. 7
SWEEPS = {
    "alpha": (2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 40.0),
    "k1": (0.1, 0.35, 0.65, 0.85, 1.0),
    "k2": (1.0, 1.2, 1.5, 2.0, 3.0),
    "delta": (1.0, 1.3, 1.6, 2.0),
}
SEEDS, EPOCHS, VIEWS = (0, 1, 2, 3), 12, 5
NAMED = {"long_name": "drawings of unseen characters whose nearest other drawing shows the same one", "units": "%"}
SIGNS, LEVEL = {"alpha": "α", "k1": "k1", "k2": "k2", "delta": "δ"}, 0.05
AXES = {
    "alpha": "α, boundary of the warp (distance)",
    "k1": "k1, slope inside α",
    "k2": "k2, slope outside α",
    "delta": "δ, multiplier of Δ",
}
TITLES = {
    "alpha": "α",
    "k1": "k1",
    "k2": "k2",
    "delta": "δ",
}


def data(progress):
    """R@1 of every setting and seed, and of t, with the distance to the proxies that t comes to by itself."""
    with one_thread():
        (pixels, labels), (held, unseen) = omniglot.images("train"), omniglot.images("test")
        rows, held = omniglot.edges(omniglot.views(pixels, VIEWS, seed=0)), omniglot.edges(held)
        asked = {name: [tuple((CENTRE | {name: value}).items()) for value in values] for name, values in SWEEPS.items()}
        runs = {None: losses.load("euclidean_softmax", {})}
        runs |= {one: losses.load("warped_softmax", dict(one)) for settings in asked.values() for one in settings}
        report, found, rest = progress and progress("training"), {}, {}
        for setting, loss in runs.items():
            *_, networks = trained(loss, rows, labels, seeds=SEEDS, epochs=EPOCHS)
            found[setting] = [recall(each, loss.metric) for each in networks.embedded(held, unseen, proxies=False)]
            last = zip(SEEDS, networks.embedded(rows[0], labels, proxies=True), strict=True)
            rest[setting] = measures.dtp({str(seed): [each] for seed, each in last})["average"].values[:, 0]
            if report:
                report(len(found), len(runs))
    about = {f"centre_{key}": value for key, value in CENTRE.items()} | {"epochs": EPOCHS, "seed": str(SEEDS)}
    about["rest_of_t"] = float(rest[None].mean())
    return {
        name: xr.Dataset(
            {
                "recall": ((name, "seed"), [found[one] for one in settings], NAMED),
                "recall_of_t": ("seed", found[None], NAMED),
                "rest": ((name, "seed"), [rest[one] for one in settings], {"long_name": "AvgDTP", "units": "distance"}),
            },
            coords={name: list(SWEEPS[name]), "seed": list(SEEDS)},
            attrs=about,
        )
        for name, settings in asked.items()
    }


def _differences(parts):
    """Every setting and its paired difference of R@1 from t."""
    return {
        (name, value): paired(part["recall"].sel({name: value}).values, part["recall_of_t"].values)
        for name, part in parts.items()
        for value in part[name].values.tolist()
    }


def _settled(parts):
    """Settings that differ from t after Holm's correction, among the distinct ones."""
    settings = {}
    for (name, value), one in _differences(parts).items():
        centre = {key: part.attrs[f"centre_{key}"] for key, part in parts.items()}
        settings.setdefault(tuple((centre | {name: value}).items()), ((name, value), one))
    adjusted = holm([one.p for _, one in settings.values()])
    return len(settings), [key for (key, _), p in zip(settings.values(), adjusted, strict=True) if p < LEVEL]


def _called(name, value):
    return f"{SIGNS[name]} = {value:g}"


def title(parts):
    """The claim."""
    number, settled = _settled(parts)
    which = ", ".join(_called(*key) for key in settled)
    return (
        f"No setting of the warp is resolved above t; {len(settled)} of {number} are below it after Holm: "
        f"{which or 'none'}"
    )


def alt(parts):
    """One sentence."""
    return "Paired differences of R@1 from plain softmax for settings of α, k1, k2 and δ, with their intervals."


def agrees(parts):
    """Differences at the best and the worst settings, and against section IV-D."""
    every = _differences(parts)
    best, worst = max(every, key=lambda key: every[key].mean), min(every, key=lambda key: every[key].mean)
    top = max(parts["k1"]["k1"].values.tolist(), key=lambda value: every["k1", value].mean)
    word = "the opposite of" if top == 1 else "in line with"
    reach = max((one.high - one.low) / 2 for one in every.values())
    return (
        f"Highest mean: {_called(*best)}, {every[best].said('points')}. Lowest: {_called(*worst)}, "
        f"{every[worst].said('points')}. The paper says: {SAID}. Ours has the highest mean of k1 at "
        f"{_called('k1', top)}, "
        f"{word} that; the difference from its neighbours is within the noise. Half-widths of the intervals reach "
        f"{reach:.1f} points, so gains of one or two points cannot be seen."
    )


def draw(parts, figure):
    """A panel a parameter, on one scale of R@1."""
    blue, orange = sns.color_palette("colorblind")[0], sns.color_palette("colorblind")[1]
    for (name, part), ax in zip(parts.items(), figure.subplots(2, 2, sharey=True).flat, strict=True):
        plain, places, mean = part["recall_of_t"], part[name].values, part["recall"].mean("seed")
        ax.axhspan(float(plain.min()), float(plain.max()), color=orange, alpha=0.15, linewidth=0)
        ax.axhline(float(plain.mean()), color=orange, linestyle="--", linewidth=1.4)
        ax.plot(places, part["recall"], color=blue, marker="o", markersize=3.5, linestyle="", alpha=0.45)
        ax.plot(places, mean, color=blue, marker="o", markersize=6, linewidth=1.8)
        centre = part.attrs[f"centre_{name}"]
        ax.plot(centre, float(mean.sel({name: centre})), marker="o", markersize=12, color="none", markeredgecolor=blue)
        if name == "alpha":
            ax.set_xscale("log", base=2)
            ax.set_xticks(places, [f"{place:g}" for place in places])
            rest, named = part.attrs["rest_of_t"], {"textcoords": "offset points", "fontsize": "small", "color": orange}
            ax.axvline(rest, color=orange, linewidth=1, linestyle=":")
            at = {"xy": (rest, 0.04), "xycoords": ("data", "axes fraction"), "xytext": (-5, 0), "ha": "right"}
            ax.annotate(f"t comes to rest\nat {rest:.1f}", **at, **named)
            at = {
                "xy": (0.99, float(plain.max())),
                "xycoords": ("axes fraction", "data"),
                "xytext": (0, 3),
                "ha": "right",
            }
            ax.annotate("t: mean and range of its seeds", **at, **named)
        ax.set(xlabel=AXES[name], title=TITLES[name])
        sns.despine(ax=ax)
    for ax in figure.axes[::2]:
        ax.set_ylabel("R@1 among unseen characters (%)")
    figure.suptitle("ring: α = 8, k1 = 0.65, k2 = 1.5, δ = 1, from which each panel varies one")
