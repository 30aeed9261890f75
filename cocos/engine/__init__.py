"""The engine: streams every score of one batch, or of thousands of batches, past readers that keep statistics.

    results = engine.run(engine.view(embeddings, batches, metric="cosine"), [reader, ...])

In: embeddings, and the rows of each batch (`view`). Out: one result per reader (`run`), e.g. the number of contributing
negatives of every query. The score matrix is computed tile by tile in float32 and never stored. Counts nevertheless
equal those of float64: `bounds` proves how far a float32 score can be from the true one, and every comparison that this
bound leaves undecided is repeated in float64. Order of reading: `view`, `tiles`, `sweep`, `sums`, `thresholds`,
`readers`.
"""

from cocos.engine.stack import PRODUCT_METRICS, fits, view
from cocos.engine.sweep import run
from cocos.engine.view import PRODUCTS, View

__all__ = ["PRODUCTS", "PRODUCT_METRICS", "View", "fits", "run", "view"]
