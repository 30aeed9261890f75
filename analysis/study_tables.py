"""Names of the losses in figures."""

LOSSES = {"ntxent": "NT-Xent", "triplet": "triplet", "triplet_sh": "triplet SH", "smoothap": "SmoothAP"}
