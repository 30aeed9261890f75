"""The fixed calls of the golden comparison, in ten groups; each yields entries, through the public names of cocos."""

import contextlib
import dataclasses
import io
import json
import os
import runpy
import shlex
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

import cocos
from golden import files, inputs
from golden.store import DOUBLE, Entry, condense, dataset_entries, document_entries

# The losses that stay.
LOSSES = (
    "a_softmax adaface align_uniform angle arcface blackbox_ap bpr cbml ce_nm ce_softmax center_contrastive circle"
    " contextual contrastive contrastive_cosine contrastive_linear cosent cosface curricularface dcl dclw"
    " euclidean_softmax fastap gbce generalized_lifted hcl hist kl_distill l2_softmax l_softmax lambdaloss"
    " lifted_structure linear_softmax listmle listwise_ap logq_softmax magface margin_mse mil_nce mnrl"
    " multi_similarity n_pair normalized_softmax ntxent proxy_anchor proxy_gml proxynca proxynca_pp ranknet"
    " recall_at_k sampled_softmax sgsl siglip smoothap smoothed_softmax snm softtriple subcenter_arcface sup_ap supcon"
    " triplet triplet_euclidean triplet_sh triplet_squared warped_softmax"
).split()
# Losses of Bleeker & de Rijke, and one or two of each family of readers.
MAIN = ("ntxent", "triplet", "triplet_sh", "smoothap")
BY_SET = {
    "pairs": (*MAIN, "siglip", "mnrl", "ce_softmax", "ce_nm", "snm", "hcl", "dclw"),
    "groups": (*MAIN, "supcon", "circle", "multi_similarity", "triplet_euclidean", "sampled_softmax"),
    "labelled": (*MAIN, "supcon", "multi_similarity", "contrastive", "lifted_structure", "fastap"),
    "proxies": ("warped_softmax", "normalized_softmax", "proxynca", "proxy_anchor", "arcface", "softtriple"),
    "negatives": ("mnrl", "ntxent", "triplet", "sampled_softmax"),
    "scores": ("ntxent", "logq_softmax", "triplet", "smoothap", "siglip"),
}
# Losses of a teacher or of graded pairs, which an ordinary set cannot give.
NEEDS_MORE = ("angle", "cosent", "kl_distill", "margin_mse", "lambdaloss", "listmle", "ranknet", "hist")
# Zeros of functions, found to a tolerance of their own.
ROOT, SOLVED = 1e-6, 2e-3
SINGLE_COUNTS = 1e-5  # sums of float32 shares over a batch


def in_float32(pairs: cocos.Pairs) -> cocos.Pairs:
    """The same pairs with all numbers in float32."""
    fields = ("scores", "query_norm", "candidate_norm", "teacher", "logq")
    numbers = {name: getattr(pairs, name) for name in fields}
    return dataclasses.replace(pairs, **{name: each.float() for name, each in numbers.items() if each is not None})


def moved_by_one_rounding(pairs: cocos.Pairs) -> cocos.Pairs:
    """The same pairs with each score moved to a neighbouring number."""
    ways = torch.arange(pairs.scores.numel()).reshape(pairs.scores.shape) % 2 * 2.0 - 1.0
    return dataclasses.replace(pairs, scores=torch.nextafter(pairs.scores, pairs.scores + ways.to(pairs.scores)))


def loss_numbers(name: str, loss, pairs: cocos.Pairs) -> dict[str, np.ndarray]:
    """Value, weight, unit and further statistics of a loss."""
    weight = cocos.weights.autograd(loss, pairs) if name == "contextual" else loss.weight(pairs)
    numbers = {"value": loss(pairs), "weight": weight, "unit": torch.as_tensor(loss.unit(pairs))}
    numbers |= {f"extra/{key}": value for key, value in loss.extra(pairs, 0.01).items()}
    return {key: value.detach().double().numpy() for key, value in numbers.items()}


def losses(folder: Path) -> Iterator[Entry]:
    """Value, weight, unit and extra of every loss: nine regimes, a labelled set, two sides in both orders."""
    for name in LOSSES:
        loss = cocos.losses.load(name)
        cases = {regime: inputs.regime(regime, loss.metric) for regime in inputs.REGIMES}
        cases["labelled"] = inputs.labelled_pairs(loss.metric)
        cases["two sides"] = inputs.two_sided_pairs(loss.metric, flipped=False)
        cases["two sides flipped"] = inputs.two_sided_pairs(loss.metric, flipped=True)
        for case, pairs in cases.items():
            numbers = loss_numbers(name, loss, pairs)
            single = loss_numbers(name, loss, in_float32(pairs))
            tied = case in ("ties", "tiny", "duplicates")
            moved = {} if tied else loss_numbers(name, loss, moved_by_one_rounding(pairs))
            for key, value in numbers.items():
                yield Entry(f"{name}/{case}/{key}", value, single=single[key], moved=moved.get(key))


def counts(folder: Path) -> Iterator[Entry]:
    """All statistics of counts on the six sets and the example: both directions, both conventions, every sampler."""
    for name, names in BY_SET.items():
        source = inputs.source(name)
        for loss in names:
            dataset = cocos.measures.count(source, loss, batch_size=32, n90=True, dtype="float64")
            yield from dataset_entries(f"{name}/{loss}", dataset)
    for name in ("pairs", "groups"):
        for loss in MAIN:
            options = {"convention": "ecir2022", "batch_size": 24, "seed": 1, "dtype": "float64"}
            options |= {"sample": "groups"} if loss == "smoothap" else {}
            dataset = cocos.measures.count(inputs.source(name), loss, **options)
            yield from dataset_entries(f"ecir2022/{name}/{loss}", dataset)
    for loss in LOSSES:
        if loss not in NEEDS_MORE:
            options = {"batch_size": 40, "batches": 2, "seed": 2, "dtype": "float64"}
            dataset = cocos.measures.count(inputs.source("groups"), loss, **options)
            kept = [str(key) for key, variable in dataset.data_vars.items() if "query" not in variable.dims]
            yield from dataset_entries(
                f"every/{loss}", dataset[["contributing", "relative", *kept]].sum("query"), 1e-11
            )
    for loss in ("ntxent", "triplet", "smoothap"):
        for label, options in {
            "groups": {"sample": "groups"},
            "two of a group": {"sample": "groups", "per_group": 2, "batch_size": 16},
            "copies": {"copies": "keep", "batch_size": 24},
            "same group": {"same_group": "negative", "batch_size": 24},
            "whole set": {"batch_size": "all"},
            "eps": {"eps": 0.1, "batch_size": 24, "seed": 4},
        }.items():
            dataset = cocos.measures.count(inputs.source("groups"), loss, **options)
            yield from dataset_entries(f"options/{label}/{loss}", dataset, SINGLE_COUNTS)
        single = cocos.measures.count(inputs.source("groups", torch.float32), loss, batch_size=40, dtype="float32")
        yield from dataset_entries(f"float32/{loss}", single, SINGLE_COUNTS)
        rows = inputs.large_set()
        for size in (256, "all"):
            dataset = cocos.measures.count(rows, loss, batch_size=size, batches=1)
            yield from dataset_entries(f"large/{size}/{loss}", dataset, SINGLE_COUNTS)
    for loss in MAIN:
        yield from dataset_entries(f"example/{loss}", cocos.measures.count(files.example(), loss), SINGLE_COUNTS)


def evaluations(folder: Path) -> Iterator[Entry]:
    """Retrieval metrics, folds, distractors, ensembles, and verification with lists of trials."""
    for name in inputs.SETS:
        yield from dataset_entries(name, cocos.measures.evaluate(inputs.source(name), ks=(1, 5, 10)))
    groups, pairs = inputs.source("groups"), inputs.source("pairs")
    for label, options in {
        "folds": {"folds": 4},
        "dot": {"metric": "dot"},
        "euclidean": {"metric": "euclidean", "ks": (1, 2)},
        "loss": {"loss": "warped_softmax"},
        "distractors": {"distractors": pairs},
        "ensemble": {"ensemble": [inputs.ensemble_member()]},
        "queries": {"queries": 20, "seed": 3},
    }.items():
        yield from dataset_entries(f"groups/{label}", cocos.measures.evaluate(groups, **options))
    yield from dataset_entries("example", cocos.measures.evaluate(files.example()), SINGLE_COUNTS)
    write_sets(folder)
    trials = [f"{int(first % 12 == second % 12)} {first} {second}" for first in range(40) for second in range(first)]
    (folder / "trials.txt").write_text("\n".join(trials) + "\n")
    intervals = frozenset({"std", "low", "high", "resamples", "level", "health", "seed"})
    for label, line in {
        "labelled": "evaluate labelled.npz --verification --json",
        "proxies": "evaluate proxies.npz --verification --json",
        "pairs": "evaluate pairs.npz --verification --prior 0.05 --json",
        "trials": "evaluate labelled.npz --verification --trials trials.txt --json",
    }.items():
        yield from document_entries(f"verification/{label}", run_line(line, folder), intervals)


def queries(folder: Path) -> Iterator[Entry]:
    """Audit, contributors, decomposition, retrievals, health, diff and run."""
    groups, example = inputs.source("groups"), files.example()
    for name in ("pairs", "groups", "labelled", "negatives"):
        for loss in ("ntxent", "triplet"):
            audit = cocos.measures.audit(inputs.source(name), loss, batch_size=32)
            yield from dataset_entries(f"audit/{name}/{loss}", audit)
    yield from dataset_entries("audit/example", cocos.measures.audit(example, "ntxent"), SINGLE_COUNTS)
    for name, loss in (("pairs", "ntxent"), ("groups", "smoothap"), ("labelled", "triplet"), ("scores", "ntxent")):
        for row in (0, 7):
            dataset = cocos.measures.contributors(inputs.source(name), loss, row=row, batch_size=32)
            yield from dataset_entries(f"contributors/{name}/{loss}/{row}", dataset)
    for name, loss in (
        ("pairs", "ntxent"),
        ("groups", "triplet"),
        ("labelled", "supcon"),
        ("proxies", "warped_softmax"),
    ):
        dataset = cocos.measures.decomposition(inputs.source(name), loss, batch_size=32)
        yield from dataset_entries(f"decomposition/{name}/{loss}", dataset)
        yield from dataset_entries(f"health/{name}/{loss}", cocos.measures.health(inputs.source(name), loss))
    for name in ("pairs", "groups", "labelled"):
        yield from dataset_entries(f"retrievals/{name}", cocos.measures.retrievals(inputs.source(name), k=4))
    yield from dataset_entries(
        "retrievals/rows", cocos.measures.retrievals(groups, "triplet_euclidean", queries=(3, 9))
    )
    for loss in ("ntxent", "triplet"):
        dataset = cocos.measures.diff(groups, inputs.ensemble_member(), loss, batch_size=32, dtype="float64")
        yield from dataset_entries(f"diff/{loss}", dataset, 1e-9)
    paths = []
    for step in range(1, 5):
        arrays = inputs.pairs_set()
        arrays["candidate"] = arrays["query"] + (arrays["candidate"] - arrays["query"]) / step
        paths.append(folder / f"step_{step}.npz")
        np.savez(paths[-1], **arrays)
    for loss in ("ntxent", "triplet"):
        yield from dataset_entries(f"run/{loss}", cocos.measures.run(paths, loss, batch_size=30, dtype="float64"))


def whatifs(folder: Path) -> Iterator[Entry]:
    """Other settings on the same batches, the temperature of a wanted spread, and where a learned one settles."""
    write_sets(folder)
    left_out = frozenset({"low", "high", "interval", "level", "health", "tried", "p", "p_holm"})
    for label, (line, tolerance) in {
        "what": (
            "whatif pairs.npz --loss ntxent --what temperature=0.02,0.05 --batch-size 32 --dtype float64 --json",
            DOUBLE,
        ),
        "batch size": (
            "whatif groups.npz --loss ntxent --what batch_size=16,64 --batch-size 32 --dtype float64 --json",
            DOUBLE,
        ),
        "mining": ("whatif pairs.npz --loss triplet --what top_k=1,4 --batch-size 32 --dtype float64 --json", DOUBLE),
        "loss": (
            "whatif labelled.npz --loss triplet --what loss=ntxent,smoothap --batch-size 32 --dtype float64 --json",
            DOUBLE,
        ),
        "margin": (
            "whatif groups.npz --loss triplet --what margin=0.1,0.4 --batch-size 32 --eps 0.1 --dtype float64 --json",
            DOUBLE,
        ),
        "effective": ("whatif pairs.npz --loss ntxent --effective 10 --batch-size 32 --dtype float64 --json", SOLVED),
        "effective 3": ("whatif groups.npz --loss ntxent --effective 3 --batch-size 32 --dtype float64 --json", SOLVED),
        "settles": ("whatif pairs.npz --loss ntxent --settles --batch-size 16,32,all --json", ROOT),
        "settles labelled": ("whatif labelled.npz --loss ntxent --settles --batch-size 48 --json", ROOT),
    }.items():
        yield from document_entries(label, run_line(line, folder), left_out, tolerance)


def curves(folder: Path) -> Iterator[Entry]:
    """Precision and recall, thresholds, score distributions, eps, concentration, maps and curves of weights."""
    measures, example = cocos.measures, files.example()
    for name in ("pairs", "groups", "labelled"):
        source = inputs.source(name)
        yield from dataset_entries(f"precision_recall/{name}", measures.precision_recall(source))
        yield from dataset_entries(f"thresholds/{name}", measures.thresholds(source))
        yield from dataset_entries(f"score_distribution/{name}", measures.score_distribution(source, bins=20))
        for loss in ("ntxent", "triplet"):
            yield from dataset_entries(f"eps_curve/{name}/{loss}", measures.eps_curve(source, loss, batch_size=32))
            yield from dataset_entries(f"lorenz/{name}/{loss}", measures.lorenz(source, loss, batch_size=32))
            yield from dataset_entries(f"weight_map/{name}/{loss}", measures.weight_map(source, loss, batch_size=12))
    for name, loss in (("proxies", "normalized_softmax"), ("negatives", "mnrl")):
        source = inputs.source(name)
        yield from dataset_entries(f"eps_curve/{name}/{loss}", measures.eps_curve(source, loss, batch_size=32))
        yield from dataset_entries(f"lorenz/{name}/{loss}", measures.lorenz(source, loss, batch_size=32))
    for loss in ("ntxent", "triplet", "smoothap", "ce_softmax"):
        yield from dataset_entries(f"weight_map/example/{loss}", measures.weight_map(example, loss), SINGLE_COUNTS)
        yield from dataset_entries(f"weight_curve/{loss}", measures.weight_curve(loss, points=41))
    for loss in ("ntxent", "triplet", "siglip"):
        yield from dataset_entries(f"score_landscape/{loss}", measures.score_landscape(loss, negatives=3, points=12))


def landscapes(folder: Path) -> Iterator[Entry]:
    """Landscapes with found and predicted minima, Lemma III.1 on both sides of its condition, distances to proxies."""
    for label, options in {
        "t": {},
        "squares": {"f1": "t^2"},
        "warp": {"f1": "warp"},
        "warp 6": {"f1": "warp", "alpha": 6.0, "k1": 0.5, "k2": 1.5, "delta": 1.3, "scale": 2.0},
        "warp near": {"f1": "warp", "alpha": 10.0, "distance": 5.0},
        "two functions": {"f1": "sqrt", "f2": "t^1.5"},
        "four proxies": {"f1": "warp", "proxies": 4},
        "squared": {"metric": "squared_euclidean"},
        "loss": {"loss": "warped_softmax"},
    }.items():
        dataset = cocos.measures.landscape(**options, points=25)
        # Both minima are roots: the found one is descended to, the predicted one solved for.
        yield from dataset_entries(label, dataset.drop_vars(["found", "predicted"], errors="ignore"), 1e-9)
        for name in ("found", "predicted"):
            if name in dataset:
                yield Entry(f"{label}/{name}", condense(dataset[name].values), 1e-5)
        # Lemma III.1: whether neither function falls, and the number of extrema off the line of the proxies (then 0).
        lemma = [dataset.attrs.get(name, np.nan) for name in ("monotone", "off_line")]
        yield Entry(f"{label}/lemma", condense(lemma))
    random = np.random.default_rng(8)
    proxies, labels = 4 * random.normal(size=(5, 6)), np.arange(40) % 5
    run = []
    for step in range(1, 5):
        samples = proxies[labels] + random.normal(size=(40, 6)) * 4 / step
        sides = (torch.from_numpy(rows) for rows in (samples, proxies, labels, np.arange(5)))
        run.append(cocos.Embeddings(*sides, directions=("s2p",)))
    for label, options in {"plain": {}, "steps": {"steps": (10, 20, 30, 40)}, "cosine": {"metric": "cosine"}}.items():
        yield from dataset_entries(f"dtp/{label}", cocos.measures.dtp({"run": run}, **options))


def draws(folder: Path) -> Iterator[Entry]:
    """Row numbers of the batches of every sampler, five seeds, from either side."""
    for name in ("pairs", "groups", "labelled", "proxies", "negatives"):
        source = inputs.source(name)
        orders = {"": source} if len(source.directions) == 1 else {"": source, " flipped": source.flip()}
        for order, side in orders.items():
            for label, options in {
                "pairs": {"sample": "pairs", "batch_size": 16},
                "groups": {"sample": "groups", "batch_size": 16},
                "per group": {"sample": "groups", "batch_size": 16, "per_group": 2},
                "copies": {"sample": "pairs", "batch_size": 16, "copies": "keep"},
                "two passes": {"sample": "pairs", "batch_size": 32, "batches": 8},
                "all": {"sample": "pairs", "batch_size": "all"},
            }.items():
                if "per_group" in options and name in ("proxies", "pairs", "negatives"):
                    continue
                by_class = {"sample": "groups", "copies": "once"} if name == "labelled" else {}
                for seed in range(5):
                    batches = cocos.embeddings.draw(side, seed=seed, **options | by_class)
                    rows = [index for batch in batches for index in (batch.query_index, batch.candidate_index)]
                    sizes = np.array([len(index) for index in rows])
                    prefix = f"{name}{order}/{label}/{seed}"
                    yield Entry(f"{prefix}/sizes", sizes.astype(np.float64))
                    yield Entry(f"{prefix}/rows", torch.cat(rows).double().numpy())


def checkpoints(folder: Path) -> Iterator[Entry]:
    """Embeddings, groups, proxies and recorded parameters of every kind of checkpoint and of training data."""
    for name, build in files.CHECKPOINTS.items():
        if not files.installed(name):
            continue
        place = folder / name.replace(" ", "_").replace("/", "_")
        place.mkdir()
        opened = build(place)
        for label, checkpoint in opened.items():
            options = {"split": label} if label in ("train", "test") else {}
            embedded = checkpoint.embed(device="cpu", **options)
            prefix = f"{name}{label and '/' + label}"
            fields = ("scores", "positive", "logq") if isinstance(embedded, cocos.Scores) else ("query", "candidate")
            for field in (*fields, "query_group", "candidate_group", "negatives"):
                rows = getattr(embedded, field, None)
                if rows is not None:
                    yield Entry(f"{prefix}/{field}", condense(rows.double().numpy()), files.tolerance(name))
            recorded = {
                f"{loss}/{key}": value
                for loss, each in (checkpoint.settings.parameters).items()
                for key, value in each.items()
            }
            for key, value in recorded.items():
                if isinstance(value, int | float):
                    yield Entry(f"{prefix}/recorded/{key}", np.asarray(value, dtype=np.float64), files.tolerance(name))


def write_sets(folder: Path) -> None:
    """Write the six sets as files."""
    for name, arrays in inputs.SETS.items():
        np.savez(folder / f"{name}.npz", **arrays())


@contextlib.contextmanager
def in_folder(folder: Path) -> Generator[None]:
    """Work in a folder; the root of the project stays importable."""
    before, arguments, root = Path.cwd(), sys.argv, str(Path(__file__).parents[2])
    os.chdir(folder)
    sys.path.insert(0, root)
    try:
        yield
    finally:
        os.chdir(before)
        sys.argv = arguments
        sys.path.remove(root)


def run_line(line: str, folder: Path) -> dict:
    """Run a command line in a folder, in this process, and return its JSON document; {} without --json."""
    module, words = "cocos", shlex.split(line)
    if words[0] == "analysis":
        module, words = "analysis", words[1:]
    output, errors = io.StringIO(), io.StringIO()
    with in_folder(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        sys.argv = [module, *words]
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=False)
        except SystemExit as ended:
            if ended.code not in (0, 1, None):  # 1: verify found a difference
                raise AssertionError(f"{line}: exit code {ended.code}\n{errors.getvalue()[-2000:]}") from None
    return json.loads(output.getvalue()) if "--json" in words else {}


def lines(folder: Path) -> Iterator[Entry]:
    """The JSON documents of command lines, and of every console line of docs/papers.md."""
    from golden import console

    console.write_inputs(folder)
    left_out = frozenset(console.LEFT_OUT)
    for name, line in console.LINES.items():
        yield from document_entries(name, run_line(line, folder), left_out, console.TOLERANCES.get(name, SINGLE_COUNTS))


GROUPS = {
    function.__name__: function
    for function in (
        losses, counts, evaluations, queries, whatifs, curves, landscapes, draws, checkpoints, lines
    )
}  # fmt: skip


def entries(group: str, folder: Path) -> Iterable[Entry]:
    """The entries of a group as they are now, computed with files in an empty folder."""
    return GROUPS[group](folder)
