"""Queries of the page one by one, as the JSON document that its map, its table and its drawer read.

The page has the document in `<script type="application/json" id="queries">`, or no such element where a page has no
queries (results alone). Every number is of the first batch that contains the query, as in `cocos query`.

```
{"directions": [                    in the order of the count; at least one
   {"name": "i2t",
    "asks": 0, "ranked": 1,         places in "rows" of the side that asks and the side that is ranked
    "eps": 0.01,
    "unit": "share",                what `contributing` compares with eps: "share" of the natural unit, or "part" of the
                                    push where the unit of the loss is not known
    "total": 2497,                  queries of the direction; there are as many in "queries", or a sample of them
    "note": "",                     a sentence on the sample, or on what was left out; empty for all
    "queries": [                    by rising row
      {"row": 17,                   row of the query in its file
       "x": 0.1, "y": -0.3,         place on the map: first two principal components of the side that asks
       "effective": 4.2,            effective number of negatives, null where nothing pushes
       "contributing": 3,           negatives above eps
       "hardest": 0.41,             part of the push on the heaviest negative, 0 to 1
       "push": 0.83,                sum of the weights that push
       "rank": 1,                   1 + negatives of the batch that score above the best positive, null without one
       "idle": false,               no negative contributes
       "positives": [[j, part, score], ...],   part of the pull, the largest first, at most 5; j is a row of "ranked"
       "top": [[j, part, score], ...],         negatives, part of the push, the largest first, at most 20; a part below
                                               0 is a negative that is pulled
       "rest": 0.12,                part of the push on all other negatives together
       "negatives": 511}            negatives in the batch
    ]}, ...],
 "rows": [                          what a row looks like, by its number as text: side 0, and side 1 where it differs
   {"17": {"text": "a cat", "image": "data:image/webp;base64,..."}, ...}, {...}]}
```

`text` and `image` are left out where a row has none; `name(row)` is then "row 17". Texts are strangers': they are shown
by `textContent`, and an image only as the `src` of an `img`. All are deterministic.
"""
