"""Export a trained run: an ONNX file that embeds on its own, or weights with a model card."""
