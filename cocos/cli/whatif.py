"""`cocos whatif`: replay batches (--what), solve for a parameter (--effective), find equilibria (--settles)."""

from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option

QUESTION = "Question"  # panel of the help


@app.command(cls=Command, epilog="Example: cocos whatif embeddings.npz --loss ntxent --what temperature=0.02,0.05")
def whatif(
    context: typer.Context,
    file: options.File,
    what: Annotated[
        list[str] | None,
        option(
            (
                "Setting to change, repeatable: a parameter of the loss (temperature, margin, ...), loss, batch_size, "
                "eps, or a mining rule (top_k, skip_k, semi_hard)."
            ),
            default="half and twice the sharpness and batch size, mining rules, another loss",
            panel=QUESTION,
            metavar="NAME=VALUES",
        ),
    ] = None,
    by: Annotated[
        str | None,
        option(
            "Quantity to compare: contributing, idle, relative, effective, push or hardest_share.",
            default="contributing",
            panel=QUESTION,
        ),
    ] = None,
    level: options.Level = None,
    effective: Annotated[
        float | None,
        option(
            "Find the temperature, scale or margin (or --parameter) with this effective number of negatives.",
            panel=QUESTION,
        ),
    ] = None,
    parameter: Annotated[
        str | None,
        option("With --effective: parameter to find.", default="the one that sets the sharpness", panel=QUESTION),
    ] = None,
    settles: Annotated[
        bool, option("Find where a learned temperature settles, by batch size.", "--settles", panel=QUESTION)
    ] = False,
    clip: Annotated[
        float | None, option("With --settles: largest scale that training allows.", default="100", panel=QUESTION)
    ] = None,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: Annotated[
        list[str] | None,
        option(
            "Pairs or queries per batch, or `all`. With --settles: repeatable, or separated by commas.",
            default="128; with --settles 32, 128, 512, 2048",
            panel=options.BATCHES,
            metavar="NUMBER",
        ),
    ] = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sampling = None,
    per_group: options.PerGroup = None,
    copies: options.RepeatedCandidates = None,
    same_group: options.GroupRows = None,
    seed: options.Seed = None,
    dtype: options.Precision = None,
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
    parameters = options.read_parameters(param, quiet)
    replaying = options.given(what=what or None, by=by, level=level, eps=eps)
    solving, settling = options.given(parameter=parameter), options.given(clip=clip)
    if settles:
        measure, option, own, others = "temperature", "--settles", settling, replaying | solving
    elif effective is not None:
        measure, option, own, others = "solve", "--effective", solving, replaying | settling
    else:
        measure, option, own, others = "replay", "--what", replaying, solving | settling
    if measure == "solve" and width is not None:
        others |= {"width": width}
    if others:
        raise InputError(f"--{next(iter(others))} does not go with {option}")
    sizes = [part.strip() for text in batch_size or () for part in text.split(",")]
    if settles:
        if not all(sizes):
            raise InputError(f"--batch-size {' '.join(batch_size or ())!r}: expected integers such as 32,128, or 'all'")
        own |= options.given(batch_sizes=[options.read_batch_size(size) for size in sizes] or None, effective=effective)
    else:
        if len(batch_size or ()) > 1:
            raise InputError(f"--batch-size {' '.join(batch_size or ())}: several sizes require --settles")
        own |= options.given(batch_size=options.read_batch_size((batch_size or [None])[0]), effective=effective)
    suffixes = (*output.RESULTS, *(() if measure == "solve" else output.FIGURES))
    output.check_output(out, file, data, suffixes=suffixes)
    if width is not None and (out is None or out.suffix == ".nc"):
        raise InputError(f"--width {width}: no figure to draw, expected --out with a suffix such as .png")
    own |= options.given(
        batches=batches, sample=sample, per_group=per_group, copies=copies,
        same_group=same_group, seed=seed, dtype=dtype, split=split, device=device,
    )  # fmt: skip

    from cocos import measures
    from cocos.plots import saving

    saving.inches(width)
    checkpoint, chosen, origin = options.open_with_loss(file, loss, parameters, data, model, dims)
    if not settles:
        origin = options.add_batch_size(own, checkpoint, origin)
    with output.progress(quiet) as start:
        dataset = getattr(measures, measure)(checkpoint, chosen, progress=start, **own)
    name = dataset.attrs["loss_repr" if measure == "replay" else "loss"]
    output.show(
        context, measure, dataset, out=out, as_json=json, quiet=quiet, notes=checkpoint.notes,
        about=[f"{file} ({checkpoint.format}): loss {name}, {origin}"],
        draw=None if measure == "solve" else output.draw_kind(measure, dataset, width),
    )  # fmt: skip
