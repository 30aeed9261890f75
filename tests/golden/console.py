"""Command lines whose JSON documents are golden: twenty-nine of everyday use, and those of docs/papers.md.

A command that is respelled keeps its name here, and its numbers.
"""

from pathlib import Path

import numpy as np

from golden import inputs

# Keys of documents that are no numbers of the method, or that are drawn by a generator of their own.
LEFT_OUT = {"low", "high", "interval", "level", "resamples", "p", "p_holm", "tried", "findings", "uncertain", "seconds"}
LEFT_OUT |= {"overlap", "overlap_push", "pushers", "tensors_in_all", "bytes", "seed", "gap"}
TOLERANCES = {"whatif/effective": 2e-3, "whatif/settles": 1e-6, "papers/temperature": 1e-6, "papers/landscape": 1e-5}

EVERYDAY = {
    "count/default": "count groups.npz --json",
    "count/temperature": "count groups.npz --loss ntxent -p temperature=0.05 --batch-size 16 --batches 3 --json",
    "count/triplet": "count groups.npz --loss triplet --eps 0.5 --metrics --json",
    "count/two": "count groups.npz --loss ntxent --loss triplet -p ntxent.temperature=0.07 --batch-size 32 --json",
    "count/ecir": "count groups.npz --loss smoothap --convention ecir2022 --batch-size 40 --batches 3 --json",
    "count/all": "count groups.npz --loss supcon --n90 --batch-size all --json",
    "count/siglip": "count groups.npz --loss siglip --dtype float64 --seed 3 --sample groups --per-group 2 --json",
    "count/copies": "count groups.npz --loss triplet_sh --same-group negative --copies keep --batch-size 24 --json",
    "count/labelled": "count labelled.npz --loss supcon --batch-size 32 --json",
    "count/proxies": "count proxies.npz --loss normalized_softmax --json",
    "count/negatives": "count negatives.npz --loss mnrl --batch-size 20 --json",
    "count/scores": "count scores.npz --loss ntxent -p temperature=1 --json",
    "evaluate/default": "evaluate groups.npz --json",
    "evaluate/folds": "evaluate groups.npz --k 1,7 --folds 5 --metric dot --json",
    "evaluate/distractors": "evaluate groups.npz --distractors pairs.npz --json",
    "evaluate/ensemble": "evaluate groups.npz --ensemble member.npz --json",
    "evaluate/verification": "evaluate labelled.npz --verification --prior 0.05 --json",
    "audit/pairs": "audit pairs.npz --loss ntxent --batch-size 32 --json",
    "audit/labelled": "audit labelled.npz --loss triplet --batch-size 32 --json",
    "whatif/default": "whatif groups.npz --loss ntxent --batch-size 32 --what temperature=0.05 --json",
    "whatif/effective": "whatif groups.npz --loss ntxent --effective 5 --batch-size 32 --json",
    "whatif/settles": "whatif groups.npz --loss ntxent --settles --batch-size 32 --json",
    "diff/models": "diff groups.npz member.npz --loss ntxent --batch-size 32 --json",
    "run/folder": "run steps --loss ntxent --batch-size 30 --json",
    "verify/ntxent": "verify ntxent --json",
    "verify/same": "verify --same-as ntxent supcon --json",
    "plot/eps_curve": "plot eps_curve groups.npz --loss ntxent --batch-size 32 --json",
    "plot/lorenz": "plot lorenz groups.npz --loss ntxent --batch-size 32 --json",
    "plot/contributors": "plot contributors groups.npz --row 3 --json",
}
# Lines of docs/papers.md, in its order: they write files that later ones read.
PAPERS = {
    "papers/count/triplet": "count f30k_test.npz --loss triplet --convention ecir2022"
    " --metrics --out triplet.nc --json",
    "papers/count/hardest": "count f30k_test.npz --loss triplet_sh --convention ecir2022"
    " --metrics --out hardest.nc --json",
    "papers/count/ntxent": "count f30k_test.npz --loss ntxent --convention ecir2022 --out ntxent.nc --json",
    "papers/count/smoothap": "count f30k_test.npz --loss smoothap --sample groups --convention ecir2022"
    " --out smoothap.nc --json",
    "papers/evaluate/triplet": "evaluate f30k_test.npz --loss triplet --out recall.nc --json",
    "papers/table/1": "analysis table 1 VSE++=recall.nc --published --json",
    "papers/table/3": "analysis table 3 triplet.nc hardest.nc --published --json",
    "papers/table/4": "analysis table 4 ntxent.nc --published --json",
    "papers/table/5": "analysis table 5 smoothap.nc --published --json",
    "papers/evaluate/ce": "evaluate captions_ask.npz --loss ce_softmax --distractors web_images.npz --k 1,5,10,100"
    " --out ce.nc --json",
    "papers/table/cross_example": "analysis table cross_example CE=ce.nc --published --json",
    "papers/table/cross_example_2": "analysis table cross_example_2 CE=ce.nc --published --json",
    "papers/plot/precision_recall": "plot precision-recall f30k_test.npz --json",
    "papers/plot/score_distribution": "plot score-distribution f30k_test.npz --json",
    "papers/plot/weight_map": "plot weight-map f30k_test.npz --loss ce_softmax --json",
    "papers/evaluate/cub": "evaluate cub_a.npz --loss warped_softmax --out cub.nc --json",
    "papers/evaluate/ensemble": "evaluate cub_a.npz --loss warped_softmax --ensemble cub_b.npz"
    " --out ensemble.nc --json",
    "papers/table/III": "analysis table III warp=cub.nc --published --json",
    "papers/table/I": "analysis table I CUB=cub.nc --published --json",
    "papers/table/VI": "analysis table VI warp=cub.nc warp=ensemble.nc --published --json",
    "papers/run": "run runs/warp --loss warped_softmax --batch-size all --out run.nc --json",
    "papers/table/III of a run": "analysis table III warp=run.nc --json",
    "papers/dtp": "plot dtp runs/plain runs/warp --alpha warp=3 --json",
    # Of the tables of that page.
    "papers/landscape": "plot landscape --f1 warp --alpha 3 --k1 0.65 --k2 1.5 --json",
    "papers/landscape/proxies": "plot landscape --proxies 4 --json",
    "papers/decompose": "plot decomposition cub_a.npz --loss warped_softmax --json",
    "papers/temperature": "whatif f30k_test.npz --settles --batch-size 32 --json",
    "papers/retrievals": "plot retrievals f30k_test.npz --confident 0.6 --json",
    "papers/table/2": "analysis table 2 --json",
    "papers/table/II": "analysis table II --json",
    "papers/table/IV": "analysis table IV --json",
    "papers/table/V": "analysis table V --json",
    "papers/table/VII": "analysis table VII --json",
    "papers/table/VIII": "analysis table VIII --json",
    "papers/losses": "losses semi-hard --json",
    "papers/verify": "verify --loss triplet --json",
}
LINES = EVERYDAY | PAPERS


def write_inputs(folder: Path) -> None:
    """Write the files that the lines read, and work without a cache of earlier runs."""
    for name, arrays in inputs.SETS.items():
        np.savez(folder / f"{name}.npz", **arrays())
    member = inputs.ensemble_member()
    names = ("query", "candidate", "query_group", "candidate_group")
    np.savez(folder / "member.npz", **{name: getattr(member, name).numpy() for name in names})
    (folder / "steps").mkdir()
    for step in (100, 200, 300):
        arrays = inputs.pairs_set()
        arrays["candidate"] = arrays["query"] + (arrays["candidate"] - arrays["query"]) * 100 / step
        np.savez(folder / "steps" / f"step_{step}.npz", **arrays)
    # As docs/papers.md makes them.
    random = np.random.default_rng(0)
    image = random.normal(size=(64, 16))
    caption = image.repeat(5, axis=0) + 1.5 * random.normal(size=(320, 16))
    group = np.arange(64)
    first, second = {"query": image, "query_group": group}, {"candidate": caption, "candidate_group": group.repeat(5)}
    np.savez(folder / "f30k_test.npz", **first, **second, directions=["i2t", "t2i"])
    first, second = {"query": caption, "query_group": group.repeat(5)}, {"candidate": image, "candidate_group": group}
    np.savez(folder / "captions_ask.npz", **first, **second, directions=["t2i", "i2t"])
    web = random.normal(size=(200, 16))
    np.savez(folder / "web_images.npz", query=web, candidate=web)
    labels, proxies = np.arange(60) // 6, 3 * random.normal(size=(10, 16))
    for model in ("a", "b"):
        samples = proxies[labels] + 2 * random.normal(size=(60, 16))
        arrays = {"embeddings": samples, "labels": labels, "proxies": proxies, "proxy_labels": np.arange(10)}
        np.savez(folder / f"cub_{model}.npz", **arrays)
    for name in ("plain", "warp"):
        (folder / "runs" / name).mkdir(parents=True)
        for step in (100, 200, 300):
            samples = proxies[labels] + random.normal(size=(60, 16)) * (2 if name == "plain" else 3) * 100 / step
            arrays = {"embeddings": samples, "labels": labels, "proxies": proxies, "proxy_labels": np.arange(10)}
            np.savez(folder / "runs" / name / f"step_{step}.npz", **arrays)
