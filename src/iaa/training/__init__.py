"""Around Algorithm 1: the assembly of a run, its directory, checkpoints, measuring and display."""
