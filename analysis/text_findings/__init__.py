"""Findings on real text embeddings: what losses of 2020 to 2026 do on the outputs of one frozen sentence encoder."""
