"""Rank correlations of runs: within blocks, beyond a baseline, curved, and at every level side by side.

A unit is what was drawn independently: a setting where losses are compared, a seed within a setting; never a
checkpoint, a batch or a query. A block holds the units that may be exchanged, such as the settings of one loss.
Units with a number that is not finite are left out and counted; a block in which a column is constant up to rounding,
or which has fewer than three units, is left out by its name. Where too little is left there is no number, but the
reason, in `undefined`: a test of a constant column or of NaN has no p-value.

Intervals are percentile intervals of the bootstrap over units within blocks, with ranks taken anew in each resample.
In simulations of normal pairs with correlations from 0 to .9, an interval of 95 % contained the truth in 94 to 98 % of
samples of 8 to 40 units, but in 62 to 98 % of samples of 4 to 6: there look at p. An interval is one point where the
order is perfect.
"""

from cocos.results.correlation._beyond import Beyond, beyond
from cocos.results.correlation._levels import LEVELS, levels, means
from cocos.results.correlation._quadratic import Quadratic, quadratic
from cocos.results.correlation._within import Association, spearman, within

__all__ = [
    "LEVELS",
    "Association",
    "Beyond",
    "Quadratic",
    "beyond",
    "levels",
    "means",
    "quadratic",
    "spearman",
    "within",
]
