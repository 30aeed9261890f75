"""Precision against recall for one threshold over all queries, and for one threshold per query."""

from cocos import measures, plots
from cocos.commands import demo

PUBLISHED = "Veit & Wilber 2020, arXiv:2011.08824 (precision and recall of one threshold; PR-AUC in its Table 1)"
DIFFERS = (
    "another model (two small towers trained with NT-Xent) and other data (emoji with captions in four languages); see "
    "cross_example for the effect of the losses of the paper"
)
INPUTS = (demo.checkpoint().path,)
SIZE = (10.4, 4.8)


def data(progress):
    """Measure all pairs of the training and of the test split."""
    frozen = demo.checkpoint()
    about = {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    return {
        split: measures.precision_recall(frozen, split=split, device="cpu").assign_attrs(about)
        for split in ("train", "test")
    }


def title(parts):
    """The claim."""
    one, own = (
        " and ".join(f"{value:.1f} %" for value in values)
        for values in (
            [part.attrs["pr_auc"] for part in parts.values()],
            [float(part["mAP"].sel(direction="i2t")) for part in parts.values()],
        )
    )
    return f"One threshold for all queries costs precision: PR-AUC {one}, mAP with one per query {own} (train, test)"


def alt(parts):
    """One sentence."""
    return f"Precision against recall on {len(parts)} splits, one threshold for all queries and the mean over queries."


def agrees(parts):
    """PR-AUC against mAP, and where one threshold is better."""
    told = [
        f"{split}: PR-AUC {part.attrs['pr_auc']:.1f} %, mAP of the image queries "
        f"{float(part['mAP'].sel(direction='i2t')):.1f} % (n = {int(part.attrs['pairs']):,} pairs, "
        f"{int(part.attrs['positive_pairs']):,} of them positive)"
        for split, part in parts.items()
    ]
    return (
        f"{'; '.join(told)}. One model, every pair: no interval over models. A caption has one positive, so its "
        "precision is the same at every recall; captions are in the data but not drawn."
    )


def draw(parts, figure):
    """Draw one panel per split."""
    for (split, part), ax in zip(parts.items(), figure.subplots(1, 2, sharey=True), strict=True):
        plots.precision_recall(part, ax=ax)
        ax.set_title(f"{split} split: PR-AUC {part.attrs['pr_auc']:.1f} %, mAP {float(part['mAP'][0]):.1f} %")
    figure.suptitle("One threshold for all queries is less precise than one per query")
