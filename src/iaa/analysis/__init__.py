"""What results say: numbers out of runs, embeddings and statistics. Nothing here draws."""
