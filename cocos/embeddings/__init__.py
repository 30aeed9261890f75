"""Embeddings and scores of a training set, pairs of them, and the sampling of batches."""

from typing import Any

from cocos.embeddings.embeddings import Embeddings, Side
from cocos.embeddings.sampling import draw

__all__ = ["UNGIVEN", "Embeddings", "Side", "draw"]

UNGIVEN: Any = None  # default of fields that a constructor fills in: typed so that readers see tensors
