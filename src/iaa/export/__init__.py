"""A trained run for others to use: one ONNX file that embeds alone, or weights with a model card."""
