"""The parts of a training run around Algorithm 1: assembly, run directory, checkpoints, measuring, display."""
