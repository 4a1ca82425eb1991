"""What a trained run is for: embed new images with it, and find the most similar ones of a gallery."""
