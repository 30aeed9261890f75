"""`cocos verify`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cocos.commands._answer import Answer, checked, progress, saved
from cocos.commands._options import Device, Opening, Param, Seed, Split, named_values
from cocos.commands._program import command
from cocos.errors import InputError


def _parted(target: str | None, loss: str | None) -> tuple[str | None, str | None]:
    """The file and the loss that are meant: `cocos verify ntxent` names a loss in the place of a file.

    Raises:
        InputError: a file that does not exist, or two losses.
    """
    if target is None or Path(target).exists():
        return target, loss
    if loss is None and (":" in target or not Path(target).suffix):
        return None, target
    if loss is not None and not Path(target).suffix:
        raise InputError(f"{target!r} and --loss {loss!r}: a file that is not there, or two losses; name one loss")
    return target, loss


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
    batches: Annotated[int, Option(help="Number of real batches to test.")] = 2,
    batch_size: Annotated[int, Option(help="Pairs or queries in a real batch.")] = 128,
    seed: Seed = 0,
    device: Device = "auto",
    split: Split = "train",
    out: Annotated[Path | None, Option(help="Write the Dataset of one loss to this file (.nc).")] = None,
):
    """Check the weights of one loss or all: closed form, torch.func, finite differences, four dtypes; 1 if wrong."""  # noqa: DOC501
    from cocos import losses as shelf
    from cocos import measures
    from cocos.reports import table

    parameters = named_values(param)
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
    options = {"against": against, "batches": batches, "batch_size": batch_size, "seed": seed, "split": split}
    with progress() as start:
        found = [measures.verify(each, frozen, **options, device=device, progress=start) for each in chosen]
    return Answer(
        text=lambda: table("verify", found),
        document=lambda: [measures.document("verify", one) for one in found],
        notes=frozen.notes if frozen else (),
        wrote=saved(found[0], out),
        code=int(any(one.attrs["faults"] for one in found)),
    )
