"""The engine: every score of a batch, or of a stack of batches, seen once per pass.

found = engine.run(engine.view(embeddings, batches, metric="cosine"), [reader, ...])
"""

from cocos.engine.parts import Part, Tally, Tile
from cocos.engine.stack import METRICS, fits, view
from cocos.engine.sweep import Next, Reader, run
from cocos.engine.view import PRODUCTS, TIES, View

__all__ = ["METRICS", "PRODUCTS", "TIES", "Next", "Part", "Reader", "Tally", "Tile", "View", "fits", "run", "view"]
