"""The losses that are counted on the embedded example, with their names in figures."""

LOSSES = {"ntxent": "NT-Xent", "triplet": "triplet", "triplet_sh": "triplet SH", "smoothap": "SmoothAP"}
