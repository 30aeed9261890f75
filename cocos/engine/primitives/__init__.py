"""What a pass can be asked: counts above thresholds, sums of exponentials, k-th scores, sigmoids, histograms."""
