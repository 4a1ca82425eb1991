"""Images in: the benchmarks, people's own data, decoding and the balanced sampler."""

from iaa.data.dataset import Dataset
from iaa.data.loading import evaluations, load

__all__ = ["Dataset", "evaluations", "load"]
