"""The paper's Section IV, in torch alone."""
