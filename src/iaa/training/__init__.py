"""The parts that Algorithm 1 is run with: setup, schedules, checkpoints, scoring, signals, loggers."""
