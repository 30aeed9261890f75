"""Losses of the shelf with other parameters than their defaults, parameters that are refused, and one of each kind."""

import torch

from cocos import losses

# Loss and parameters; each has every property that test_losses.py looks for.
VARIANTS = (
    ("linear_softmax", {"smoothing": 0.0}),
    ("linear_softmax", {"smoothing": 0.9}),
    ("cosface", {"margin": 0.0}),
    ("arcface", {"margin": 0.0}),
    ("arcface", {"margin": 1.3, "scale": 10.0}),
    ("arcface", {"margin": 3.0, "scale": 10.0}),
    ("magface", {"l_a": 1.2, "u_a": 3.0}),
    ("magface", {"l_a": 1.2, "u_a": 150.0, "l_m": 0.0, "u_m": 1.5, "lambda_g": 0.0}),
    ("l_softmax", {"margin": 1}),
    ("l_softmax", {"margin": 2, "annealing": 5.0}),
    ("l_softmax", {"margin": 7}),
    ("a_softmax", {"margin": 1, "annealing": 3.0}),
    ("a_softmax", {"margin": 3, "annealing": 5.0}),
    ("a_softmax", {"margin": 6}),
    ("center_contrastive", {"scale": 16.0, "margin": 0.0, "weight": 2.0}),
    ("softtriple", {"gamma": 0.01}),
    ("softtriple", {"gamma": 2.0, "margin": 0.5}),
    ("proxy_gml", {"ratio": 1.0}),
    ("proxy_gml", {"ratio": 0.6}),
    ("adaface", {"margin": 0.0}),
    ("adaface", {"h": 0.0}),
    ("adaface", {"margin": 1.4, "h": 3.0, "scale": 10.0}),
    ("adaface", {"mean": 2.0, "deviation": 0.2}),
    ("curricularface", {"t": 0.8}),
    ("curricularface", {"t": -0.3, "margin": 1.3, "scale": 10.0}),
    ("curricularface", {"margin": 3.0, "t": 1.0, "scale": 10.0}),
    ("subcenter_arcface", {"margin": 0.0}),
    ("subcenter_arcface", {"margin": 1.3, "scale": 10.0}),
    ("subcenter_arcface", {"margin": 0.2, "scale": 32.0}),
    ("subcenter_arcface", {"margin": 0.0, "scale": 5.0}),
    ("lambdaloss", {"scheme": "lambdarank", "scale": 3.0}),
    ("lambdaloss", {"scheme": "ndcg1"}),
    ("lambdaloss", {"scheme": "ndcg2", "k": 2}),
    ("lambdaloss", {"scheme": "ndcg1", "k": 3}),
    ("lambdaloss", {"mu": 0.5, "k": 1}),
    ("multi_similarity", {"mining": 0.1}),
    ("multi_similarity", {"mining": 0.0, "alpha": 5.0, "beta": 8.0, "base": 1.0}),
    ("circle", {"detach": False}),
    ("circle", {"margin": 0.0, "gamma": 4.0}),
    ("cbml", {"margin": 0.5, "weight": 0.3, "hyper": 0.7, "neg_b": 0.2}),
    ("cbml", {"hyper": 1.0, "pos_a": -0.2, "neg_a": 0.4}),
    ("contrastive_linear", {"pos_margin": 0.5, "neg_margin": 2.5}),
    ("lifted_structure", {"margin": 3.0}),
    ("proxy_anchor", {"alpha": 4.0, "margin": -0.3}),
    ("sgsl", {"gamma": 2.0}),
    ("siglip", {"scale": 117.3, "bias": -12.9}),
    ("siglip", {"scale": 2.0, "bias": 1.5}),
    ("snm", {"fraction": 0.2, "scale": 5.0}),
    ("snm", {"fraction": 0.5, "scale": 5.0}),
    ("snm", {"fraction": 0.9, "scale": 5.0}),
    ("ce_nm", {"fraction": 0.2, "scale": 5.0}),
    ("ce_nm", {"fraction": 0.5, "scale": 5.0}),
    ("ce_nm", {"fraction": 0.9, "scale": 5.0}),
    ("mil_nce", {"temperature": 0.1}),
    ("smoothed_softmax", {"temperature": 0.5, "smoothing": 0.0}),
    ("smoothed_softmax", {"temperature": 1.0, "smoothing": 0.9}),
    ("gbce", {"calibration": 1.0, "catalogue": 40}),
    ("gbce", {"calibration": 0.5, "catalogue": 8}),
    ("ranknet", {"scale": 4.0}),
    ("logq_softmax", {"temperature": 0.2, "correction": "repaired"}),
    ("euclidean_softmax", {"f1": "t^2", "f2": "sqrt", "scale": 1.5}),
    ("euclidean_softmax", {"f1": "sqrt", "f2": "t^1.5", "scale": 1.5}),
    ("euclidean_softmax", {"f1": "t^1.5", "f2": "0.97", "scale": 1.5}),
    ("euclidean_softmax", {"f1": "2", "f2": "2"}),
    ("warped_softmax", {"alpha": 0.0, "k1": 0.5, "k2": 1.0, "delta": 1.3}),
    ("warped_softmax", {"alpha": 2.0, "k1": 0.5, "k2": 1.5, "delta": 1.0, "scale": 1.5}),
    ("warped_softmax", {"alpha": 2.0, "k1": 1.0, "k2": 1.0, "delta": 0.0}),
    ("warped_softmax", {"alpha": 2.0, "k1": 1.0, "k2": 1.5, "delta": 1.3, "scale": 1.5}),
    ("warped_softmax", {"alpha": 100.0, "k1": 0.5, "k2": 1.0, "delta": 0.0}),
)
# Loss, parameters that depend on each other or are no numbers, and the sentence after the name of the loss.
REFUSED = (
    ("magface", {"l_a": 110}, "l_a must be above 0 and u_a finite and above l_a, got 110.0 and 110.0"),
    ("magface", {"u_m": 0.4}, "l_m must be at least 0 and u_m between l_m and pi/2 (radians), got 0.45 and 0.4"),
    ("listwise_ap", {"low": 1}, "low must be below high, got 1.0 and 1.0"),
    ("recall_at_k", {"ks": "0,2"}, "ks must be integers of at least 1, got (0, 2)"),
    ("euclidean_softmax", {"f1": "t^3"}, "f1 must be t, t^2, sqrt, t^1.5 or a finite number above 0, got t^3"),
    ("euclidean_softmax", {"f2": "-1"}, "f2 must be t, t^2, sqrt, t^1.5 or a finite number above 0, got -1"),
    ("euclidean_softmax", {"f2": "nan"}, "f2 must be t, t^2, sqrt, t^1.5 or a finite number above 0, got nan"),
)


def autograd_radial(loss, pairs):
    """Gradient of the summed loss with respect to the norm of each query, the scores fixed, (Q,)."""
    return torch.func.grad(lambda norm: loss(pairs.with_scores(pairs.scores, norm)).sum())(pairs.query_norm)


def one_of_each_kind():
    """The first loss of each metric, coupling, gradient, balance, norm and number of directions, as the shelf has them.

    For what is a matter of a measure and not of a loss: tests/test_losses.py looks at every loss.
    """
    found = {}
    for name in losses.names():
        loss = losses.load(name)
        kind = (
            loss.metric,
            loss.couples,
            loss.gradient,
            loss.balanced,
            loss.reads_norms,
            len(loss.directions),
        )
        found.setdefault(kind, name)
    return list(found.values())


KINDS = one_of_each_kind()
