"""Captions of figures, filled from the data that the figure draws.

A script has `title(parts)`, the claim; `alt(parts)`, a sentence that describes the figure; `agrees(parts)`, the
evidence with its n and intervals; and the constants PUBLISHED, the source, and DIFFERS, the reasons for differences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import xarray as xr

from cocos.base.errors import InputError

CAPTION_FUNCTIONS = ("title", "alt", "agrees")


@dataclass(frozen=True)
class Caption:
    """Caption of one figure.

    Args:
        claim: the finding, one sentence.
        alt: one sentence that describes the figure, for readers who cannot see it.
        evidence: numbers with n and intervals.
        about: description.
        published: paper and figure, or none.
        differs: reasons why our figure is not the same.
    """

    claim: str
    alt: str
    evidence: str
    about: str
    published: str
    differs: str

    def lines(self, name: str) -> list[str]:
        """Markdown of this figure in the index."""
        rows = {"Claim": self.claim, "Evidence": self.evidence, "Published": self.published}
        rows |= {"Differs because": self.differs}
        told = [f"- **{head}:** {text}" for head, text in rows.items() if text]
        return [f"## {name}", "", f"![{self.alt}]({name}.png)", "", self.about, "", *told, ""]


def holds(condition: bool, words: str) -> str:
    """Return the words if the condition holds; otherwise the caption must be rewritten."""
    if not condition:
        raise InputError(f"the caption says {words!r}, and its data do not")
    return words


def write(module: ModuleType, parts: Mapping[str, xr.Dataset]) -> Caption:
    """Fill the caption of a script from its data."""
    name = module.__name__.removeprefix("analysis_")
    for each in CAPTION_FUNCTIONS:
        if not callable(getattr(module, each, None)):
            raise InputError(f"{name}.py: it has no function {each}(parts), which a figure needs for its caption")
    try:
        claim, alt, evidence = (" ".join(getattr(module, each)(parts).split()) for each in CAPTION_FUNCTIONS)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (KeyError, AttributeError, ValueError) as error:
        raise InputError(f"{name}: its caption does not fit its data ({error}); run cocos figures {name}") from error
    published, differs = getattr(module, "PUBLISHED", ""), getattr(module, "DIFFERS", "")
    return Caption(claim, alt, evidence, (module.__doc__ or "").strip(), published, differs)
