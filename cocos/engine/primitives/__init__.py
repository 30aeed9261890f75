"""Primitives from which readers are built: counts above thresholds, log-sum-exp, k-th scores, histograms."""
