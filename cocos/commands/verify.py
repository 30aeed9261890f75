"""`cocos verify`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cocos.base.errors import InputError
from cocos.commands._answer import Answer, checked, progress, saved
from cocos.commands._options import Device, Opening, Param, Seed, Split, named_values
from cocos.commands._program import command


def _parted(target: str | None, loss: str | None) -> tuple[str | None, str | None]:
    """The file and the loss that are meant: `cocos verify ntxent` names a loss in the place of a file."""
    if target is None or Path(target).exists():
        return target, loss
    if loss is None and (":" in target or not Path(target).suffix):
        return None, target
    if loss is not None and not Path(target).suffix:
        raise InputError(f"{target!r} and --loss {loss!r}: a file that is not there, or two losses; name one loss")
    return target, loss


def _same(
    source: Opening, losses: tuple[str, str], target: str | None, parameters: dict, out: Path | None, options: dict
) -> Answer:
    """Answer `--same-as A B`: exit code 0 where both are the same gradient, 1 where they are not."""
    from cocos import measures
    from cocos.commands._answer import notes_of
    from cocos.reports import table

    checked(out, target, source.data)
    frozen = None if target is None else source.open(Path(target))
    with progress() as start:
        found = measures.same_gradient(*losses, frozen, parameters=parameters, progress=start, **options)
    return Answer(
        text=lambda: table("same_gradient", found),
        document=lambda: measures.document("same_gradient", found),
        notes=[*(frozen.notes if frozen else ()), *notes_of(found)],
        wrote=saved(found, out),
        code=1 - found.attrs["same"],
    )


@command("Losses", 2)
def verify(
    source: Opening,
    target: Annotated[
        str | None,
        Argument(help="A checkpoint, a file of embeddings, or a loss. [synthetic input]", show_default=False),
    ] = None,
    loss: Annotated[
        str | None, Option(help="Loss to verify: see `cocos losses`. [all, or the checkpoint's own]")
    ] = None,
    param: Param = None,
    against: Annotated[
        str | None, Option(help="Another loss that should be equal, given the parameters of the same name.")
    ] = None,
    same_as: Annotated[
        tuple[str, str] | None,
        Option(
            metavar="A B",
            help="Two losses: are they the same gradient? Each is a name, your file.py:function of (query, candidate), "
            "or LOSS@WAY: @cached=32, @chunks=32, @ranks=2[,gather=detached|none][,loss=global], @accumulate=4, "
            "@dtype=bfloat16, @reduction=sum, @temperature=0.05. The argument is then a file, or synthetic input.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        Option(
            help="With --same-as: largest difference of equal gradients, in parts of the largest. [1e-9 in float64, "
            "1e-4 in float32, 1e-2 in float16, 5e-2 in bfloat16]"
        ),
    ] = None,
    batches: Annotated[int, Option(help="Number of real batches to test, or of any with --same-as.")] = 2,
    batch_size: Annotated[
        int | None, Option(help="Pairs or queries in a batch. [128, 64 with --same-as]", show_default=False)
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    split: Split = "train",
    out: Annotated[Path | None, Option(help="Write the Dataset of one loss to this file (.nc).")] = None,
):
    """Check the weights of one loss or all, or whether two are the same gradient (--same-as); exit code 1 if not."""
    from cocos import losses as shelf
    from cocos import measures
    from cocos.reports import table

    parameters = named_values(param)
    if same_as is not None:
        if loss is not None or against is not None:
            raise InputError("--same-as names both losses: leave out --loss and --against")
        options = {
            "batches": batches,
            "batch_size": 64 if batch_size is None else batch_size,
            "seed": seed,
            "split": split,
        }
        return _same(source, same_as, target, parameters, out, options | {"tolerance": tolerance, "device": device})
    if tolerance is not None:
        raise InputError("--tolerance belongs to --same-as A B")
    target, loss = _parted(target, loss)
    if loss is None and target is None and (parameters or against):
        raise InputError("parameters or --against, but no loss: name it with --loss")
    checked(out, target, source.data)
    frozen = None if target is None else source.open(Path(target))
    if loss is not None or frozen is not None:
        chosen = [frozen.loss(loss, parameters)[0] if frozen else shelf.load(loss, parameters)]
    else:
        chosen = [shelf.load(name) for name in shelf.names()]
    if out is not None and len(chosen) > 1:
        raise InputError(f"--out {out}: it holds one loss; name it with --loss")
    options = {
        "against": against,
        "batches": batches,
        "batch_size": 128 if batch_size is None else batch_size,
        "seed": seed,
        "split": split,
    }
    with progress() as start:
        found = [measures.verify(each, frozen, **options, device=device, progress=start) for each in chosen]
    return Answer(
        text=lambda: table("verify", found),
        document=lambda: [measures.document("verify", one) for one in found],
        notes=frozen.notes if frozen else (),
        wrote=saved(found[0], out),
        code=int(any(one.attrs["faults"] for one in found)),
    )
