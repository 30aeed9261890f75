"""`cocos whatif`: replay batches (--what), solve for a parameter (--effective), find equilibria (--settles)."""

from functools import partial
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import command
from cocos.cli.options import option

QUESTION = "Question"  # panel of the help
# Options of one of the three questions only.
REPLAY_ONLY, SOLVE_ONLY, SETTLE_ONLY = ("what", "by", "level", "eps"), ("parameter",), ("clip",)
WHAT_HELP = (
    "Setting to change, repeatable: a parameter of the loss (temperature, margin, ...), loss, batch_size, eps, or a "
    "mining rule (top_k, skip_k, semi_hard)."
)
WHAT_DEFAULT = "half and twice the sharpness and batch size, mining rules, another loss"
BY_HELP = "Quantity to compare: contributing, idle, relative, effective, push or hardest_share."
EFFECTIVE_HELP = "Find the temperature, scale or margin (or --parameter) with this effective number of negatives."
SETTLES_HELP = "Find where a learned temperature settles, by batch size."
SIZE_HELP = "Pairs or queries per batch, or `all`. With --settles: repeatable, or separated by commas."


@command(epilog="Example: cocos whatif embeddings.npz --loss ntxent --what temperature=0.02,0.05")
def whatif(
    context: typer.Context,
    file: options.File,
    what: Annotated[list[str] | None, option(WHAT_HELP, WHAT_DEFAULT, QUESTION, metavar="NAME=VALUES")] = None,
    by: Annotated[str | None, option(BY_HELP, "contributing", QUESTION)] = None,
    level: options.Level = None,
    effective: Annotated[float | None, option(EFFECTIVE_HELP, "", QUESTION)] = None,
    parameter: Annotated[
        str | None, option("With --effective: parameter to find.", "the one that sets the sharpness", QUESTION)
    ] = None,
    settles: Annotated[bool, option(SETTLES_HELP, "", QUESTION, "--settles")] = False,
    clip: Annotated[float | None, option("With --settles: largest scale in training.", "100", QUESTION)] = None,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: Annotated[
        list[str] | None,
        option(SIZE_HELP, "128; with --settles 32, 128, 512, 2048", options.BATCHES, metavar="NUMBER"),
    ] = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    copies: options.Copies = None,
    same_group: options.SameGroup = None,
    seed: options.Seed = None,
    dtype: options.Dtype = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: options.Split = None,
    device: options.Device = "auto",
    out: options.FigureOut = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Recount with a different temperature, margin, batch size, mining rule or loss.

    Without --effective and --settles, the same batches are replayed with the changes of --what.
    """
    if settles:
        measure, question, own, others = "temperature", "--settles", SETTLE_ONLY, REPLAY_ONLY + SOLVE_ONLY
    elif effective is not None:
        measure, question, own, others = "solve", "--effective", SOLVE_ONLY, REPLAY_ONLY + SETTLE_ONLY + ("width",)
    else:
        measure, question, own, others = "replay", "--what", REPLAY_ONLY, SOLVE_ONLY + SETTLE_ONLY
    for name in options.chosen(context, *others):
        raise InputError(f"--{name} does not go with {question}")
    sizes = [options.read_count(size) for size in options.read_names(batch_size) or ()]
    if len(sizes) > 1 and not settles:
        raise InputError(f"--batch-size {' '.join(map(str, sizes))}: several sizes require --settles")
    own_options = options.chosen(context, "effective", *own, *options.SAMPLING)
    own_options.pop("batch_size", None)
    if sizes:
        own_options |= {"batch_sizes": sizes} if settles else {"batch_size": sizes[0]}
    suffixes = output.RESULTS if measure == "solve" else output.RESULTS + output.FIGURES
    output.check_output(out, file, data, suffixes=suffixes)
    if width is not None and (out is None or out.suffix == ".nc"):
        raise InputError(f"--width {width}: no figure to draw, expected --out with a suffix such as .png")

    from cocos import measures
    from cocos.plots import saving
    from cocos.reports import drawing

    saving.inches(width)
    checkpoint, chosen, origin = options.open_with_loss(context, file)
    if not settles:
        origin = options.add_batch_size(own_options, checkpoint, origin)
    with output.progress(quiet) as start:
        dataset = getattr(measures, measure)(checkpoint, chosen, progress=start, **own_options)
    name = dataset.attrs["loss_repr" if measure == "replay" else "loss"]
    output.show(
        context,
        dataset,
        about=[f"{file} ({checkpoint.format}): loss {name}, {origin}"],
        notes=checkpoint.notes,
        draw=None if measure == "solve" else partial(drawing.draw, measure, [dataset], width=width),
    )
