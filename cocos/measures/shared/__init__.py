"""Parts that several measures share: the prepared batches, their settings, retrieval metrics and rankings."""
