"""Names under which other code saves embeddings, and the names that these have here."""

from cocos.checkpoints import _inventory
from cocos.checkpoints.files import File

__all__ = ["renamed"]

# Two sides, and their directions: outputs of CLIP and of its kin, of VSE++, of code for pairs and triples.
IMAGE_TEXT, PAIR = "i2t,t2i", "q2c,c2q"
PAIRS = {
    ("image_features", "text_features"): IMAGE_TEXT,
    ("image_embeds", "text_embeds"): IMAGE_TEXT,
    ("image_embeddings", "text_embeddings"): IMAGE_TEXT,
    ("img_embs", "cap_embs"): IMAGE_TEXT,
    ("img_emb", "cap_emb"): IMAGE_TEXT,
    ("image", "text"): IMAGE_TEXT,
    ("anchor", "positive"): PAIR,
    ("anchors", "positives"): PAIR,
    ("queries", "candidates"): PAIR,
    ("queries", "documents"): PAIR,
    ("query", "document"): PAIR,
    ("query", "passage"): PAIR,
    ("query", "positive"): PAIR,
}
SAMPLES = ("embeddings", "features", "feats", "feat", "embedding", "embs", "emb", "vectors", "x", "X")
CLASSES = ("labels", "label", "targets", "target", "classes", "class_ids", "identities", "pids", "y")


def renamed(file: File) -> tuple[dict[str, str], str | None]:
    """Find arrays that are two sides or a labelled set under other names, if their shapes allow no other reading.

    Args:
        file: of arrays or tensors.

    Returns:
        Name in the file -> name here, empty where the names are those used here or unknown; and the directions.
    """
    held = {each.name: each for each in _inventory.tensors(file)}
    matrices = {name: each for name, each in held.items() if len(each.shape) == 2 and "float" in each.dtype}
    if {"query", "candidate"} <= held.keys() or {"embeddings", "labels"} <= held.keys():
        return {}, None
    for (query, candidate), directions in PAIRS.items():
        if {query, candidate} <= matrices.keys() and matrices[query].shape == matrices[candidate].shape:
            hard = next((name for name in ("negative", "negatives") if directions == PAIR and name in held), None)
            own = {hard: "negatives"} if hard else {}
            return {query: "query", candidate: "candidate"} | own, directions
    samples = next((name for name in SAMPLES if name in matrices), None)
    if samples is None:
        return {}, None
    rows = matrices[samples].shape[0]
    listed = {name: (len(each),) for name in CLASSES if isinstance(each := file.record.get(name), list)}
    shapes = listed | {name: held[name].shape for name in CLASSES if name in held}
    labels = next((name for name in CLASSES if shapes.get(name) == (rows,)), None)
    return ({}, None) if labels is None else ({samples: "embeddings", labels: "labels"}, None)
