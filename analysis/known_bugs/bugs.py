"""The bugs: where they were reported, what was wrong, and the functions that re-create them."""

from collections.abc import Callable
from dataclasses import dataclass

import cocos
from analysis.known_bugs import recreated

__all__ = ["BUGS", "Bug", "said"]


@dataclass(frozen=True)
class Bug:
    """One bug.

    Args:
        library: that had it, or whose issue describes it.
        thread: address of the public thread.
        fault: what the code did.
        reference: the loss that was meant: a name of the shelf, or a function.
        wrong: the fault, re-created.
        right: its twin without the fault.
        names: words of the verdict that name the fault.
    """

    library: str
    thread: str
    fault: str
    reference: str | Callable
    wrong: Callable
    right: Callable
    names: str


def said(bug: Bug, *, cured: bool = False) -> str:
    """The verdict on the fault, or on its right twin."""
    data = cocos.measures.same_gradient(bug.reference, bug.right if cured else bug.wrong)
    return data.attrs["verdict"]


BUGS = {
    "misaligned-gather": Bug(
        "sentence-transformers",
        "https://github.com/huggingface/sentence-transformers/pull/3453",
        "Columns gathered from several devices stand device by device, positives and hard negatives in turn; the "
        "targets assume all positives first, so anchors of later devices are trained towards hard negatives.",
        "ntxent",
        recreated.misaligned_gather,
        recreated.aligned_gather,
        "misaligned targets: queries 32-63 are pulled to hard negatives",
    ),
    "lost-mini-batches": Bug(
        "sentence-transformers",
        "https://github.com/huggingface/sentence-transformers/pull/3854",
        "A mini-batched loss compares the end of a mini-batch with the length of its own scores, so that no mini-batch "
        "goes backward, and the last one, which is returned, is all that trains.",
        "triplet_sh@margin=1",
        recreated.lost_mini_batches,
        recreated.kept_mini_batches,
        "the last mini-batch alone has a gradient: queries 48-63, ratio 4.00",
    ),
    "guide-of-the-first-mini-batch": Bug(
        "sentence-transformers",
        "https://github.com/huggingface/sentence-transformers/issues/2932",
        "A cached loss with a guide reads the guide's score of anchor and positive from the main diagonal in every "
        "mini-batch, so that all but the first one mask the wrong candidates.",
        recreated.guide_whole,
        recreated.guide_without_offset,
        recreated.guide_with_offset,
        "the same but for queries 32",
    ),
    "gather-without-gradient": Bug(
        "pytorch-metric-learning",
        "https://github.com/KevinMusgrave/pytorch-metric-learning/issues/363",
        "Each process computes the loss of all rows, of which its own alone have a gradient; averaging over the "
        "processes then divides the gradient by their number.",
        "ntxent",
        recreated.averaged_away,
        recreated.times_the_world,
        "the same up to a factor of 0.50 (mean against sum? world size?",
    ),
    "local-loss-alone": Bug(
        "open_clip",
        "https://github.com/mlfoundations/open_clip/issues/616",
        "A local loss whose gathered features have no gradient: what other processes' rows owe to mine is lost.",
        recreated.both_ways,
        recreated.local_loss_alone,
        recreated.local_loss_and_gradient,
        "the same within mini-batches of 32 rows, across them ratio",
    ),
    "views-mixed-up": Bug(
        "Spijkervet/SimCLR",
        "https://github.com/Spijkervet/SimCLR/pull/46",
        "Both views are concatenated before they are gathered; the mask of positives assumes all first views, then all "
        "second views.",
        recreated.two_views,
        recreated.views_mixed_up,
        recreated.views_in_order,
        "misaligned targets: queries 0-63 are pulled to other queries",
    ),
    "sigmoid-sign": Bug(
        "colpali",
        "https://github.com/illuin-tech/colpali/pull/382",
        "The sigmoid loss has the wrong sign: it pulls negatives and pushes positives.",
        "siglip@bias=0",
        recreated.sigmoid_upside_down,
        recreated.sigmoid_upright,
        "the opposite",
    ),
    "sigmoid-mean": Bug(
        "big_vision (a re-implementation)",
        "https://github.com/google-research/big_vision/issues/115",
        "A mean over all pairs, divided by the batch size, in place of a sum over all pairs divided by it.",
        "siglip",
        recreated.sigmoid_mean_of_pairs,
        recreated.sigmoid_sum_of_pairs,
        "mean over pairs against sum over pairs",
    ),
    "cosent-inverted": Bug(
        "sentence-transformers (its documentation)",
        "https://github.com/huggingface/sentence-transformers/issues/3368",
        "The documented formula of CoSENT has the two scores of a comparison exchanged; code written after it pulls "
        "the pairs of low grade.",
        recreated.cosent_pair_by_pair,
        recreated.cosent_of_the_page,
        recreated.cosent_of_the_code,
        "the opposite",
    ),
    "dcl-two-logarithms": Bug(
        "lightly",
        "https://github.com/lightly-ai/lightly/pull/1826",
        "DCL adds the logarithms of the sums over both views in place of one logarithm of all: twice the push.",
        recreated.dcl_row_by_row,
        recreated.two_logarithms,
        recreated.one_logarithm,
        "the same pull, and 2.00 times the push",
    ),
    "reduced-without-gradient": Bug(
        "lightly",
        "https://github.com/lightly-ai/lightly/issues/1977",
        "The cross-correlation is summed over processes by a collective without backward: the value is right, the "
        "gradient is divided by the number of processes.",
        recreated.barlow_whole,
        recreated.reduced_without_gradient,
        recreated.reduced_with_gradient,
        "the same up to a factor of 0.50 (mean against sum? world size?",
    ),
    "scale-as-stored": Bug(
        "M3D",
        "https://github.com/BAAI-DCAI/M3D/issues/52",
        "The learned parameter, the logarithm of the scale, multiplies the scores without being exponentiated.",
        "ntxent@temperature=0.07",
        recreated.scale_as_it_is_stored,
        recreated.scale_exponentiated,
        "another temperature: B multiplies its scores by 11.63 less than A (temperature 0.376 in place of 0.07)",
    ),
    "first-group-for-all": Bug(
        "FlagEmbedding",
        "https://github.com/FlagOpen/FlagEmbedding/issues/450",
        "Without in-batch negatives a product is broadcast, so that every query is scored with every group, and target "
        "0 is the passage of the first query for all of them.",
        recreated.own_negatives_one_by_one,
        recreated.first_group_for_all,
        recreated.only_own_negatives,
        "misaligned targets: queries 1-63 are pulled to candidates of other queries",
    ),
    "positive-resampled": Bug(
        "ms-swift",
        "https://github.com/modelscope/ms-swift/pull/10068",
        "Where more hard negatives are asked for than there are, the missing ones are drawn from columns that begin "
        "with the positive and end before the last hard negative: the positive is treated as a negative of its own "
        "query.",
        recreated.counted_negatives,
        recreated.resampled_with_positive,
        recreated.resampled_negatives,
        "the positive stands among the negatives of queries",
    ),
}
