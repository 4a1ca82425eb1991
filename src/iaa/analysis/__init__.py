"""Measurements on statistics and embeddings: computes, never draws."""
