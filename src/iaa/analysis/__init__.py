"""Measurements on statistics, embeddings and runs: computes, never draws."""
