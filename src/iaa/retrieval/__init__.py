"""From embeddings to numbers: the embeddings file, exact neighbours, metrics, approximate indexes."""
