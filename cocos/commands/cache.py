"""`cocos cache`."""

import time

from cocos.base.errors import InputError, unreachable
from cocos.commands._answer import Answer
from cocos.commands._options import option
from cocos.commands._program import command

MEBIBYTE = 2**20  # bytes
# Characters of a label that are printed.
MOST_OF_A_LABEL = 200


@command(
    "The installation",
    2,
    options={
        "clear": option(bool, "Delete the files of the cache.", False, "--clear"),
    },
)
def cache(clear) -> Answer:
    """List the embeddings that are kept, with their sizes, or delete them."""
    from cocos.base import cache as kept

    where = kept.folder()
    if clear:
        try:
            number, size = kept.clear()
        except OSError as error:
            raise InputError(f"cache {where}: {error.filename} cannot be deleted ({unreachable(error)})") from None
        document = {"folder": where and str(where), "deleted": number, "bytes": size}
        return Answer(
            text=lambda: f"deleted {number} files of {size / MEBIBYTE:.1f} MiB in {where}", document=lambda: document
        )
    entries = kept.entries()
    total = sum(each.size for each in entries)
    document = {
        "folder": where and str(where),
        "bytes": total,
        "entries": [
            {
                "path": str(each.path),
                "bytes": each.size,
                "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.time)),
                "label": each.label,
                "rows": each.shape[0],
                "width": each.shape[1],
                "whole": each.whole,
                "key": each.about,
            }
            for each in entries
        ],
    }

    def text() -> str:
        if where is None:
            return "the cache is off (COCOS_CACHE)"
        lines = [
            f"{each.size / MEBIBYTE:8.1f} MiB  {time.strftime('%Y-%m-%d %H:%M', time.localtime(each.time))}  "
            f"{each.label[:MOST_OF_A_LABEL] or 'damaged, or writable for others'}: "
            f"{each.shape[0]} x {each.shape[1]}{'' if each.whole else ', a part'}"
            for each in entries
        ]
        why = kept.distrusted(where)
        lines += [f"not used: {why}"] if why else []
        return "\n".join([*lines, f"{total / MEBIBYTE:8.1f} MiB  {len(entries)} files in {where}"])

    return Answer(text=text, document=lambda: document)
