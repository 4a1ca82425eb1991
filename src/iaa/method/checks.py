"""What a batch of embeddings must look like, said once and in words."""

import math
import numbers
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.errors import unknown

Array = np.ndarray | list[Any]
"""What is taken in the place of a tensor."""
ENCODE = "encode them as 0 … C-1, for example `classes, labels = numpy.unique(labels, return_inverse=True)`"


def as_tensor(name: str, values: Any) -> Tensor:
    """A tensor of a tensor, a numpy array or a list; text is refused with the way to encode it.

    >>> as_tensor("labels", [0, 0, 1])
    tensor([0, 0, 1])
    """
    if isinstance(values, Tensor):
        return values
    if isinstance(values, list | tuple) and values and isinstance(values[0], Tensor):
        return torch.stack(list(values))
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"{name} must be numbers in rows of one length, got {type(values).__name__}"
        ) from error
    if array.dtype.kind not in "biuf":
        hint = f"; {ENCODE}" if name == "labels" else ""
        raise TypeError(f"{name} must hold numbers, got {array.dtype} such as {array.flat[0]}{hint}")
    tensor = torch.as_tensor(array)
    return tensor.float() if isinstance(values, list) and tensor.is_floating_point() else tensor


def check_batch(
    z: Tensor, labels: Tensor, *, num_classes: int | None = None, dim: int | None = None
) -> Tensor:
    """The labels of ``z``, ready to index with, unless ``z`` (N, D) and ``labels`` (N,) cannot go together.

    Raises ``TypeError`` or ``ValueError`` that names what is wrong and where.
    """
    for name, given in (("z", z), ("labels", labels)):
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(given).__name__}: torch.as_tensor makes one")
    if not z.is_floating_point():
        raise TypeError(f"z must hold floating-point numbers, got {z.dtype}")
    if z.ndim != 2:
        raise ValueError(f"z must have shape (samples, dimensions), got {tuple(z.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must hold integers, got {labels.dtype}")
    if labels.ndim != 1:
        raise ValueError(f"labels must have shape (samples,), got {tuple(labels.shape)}")
    if len(labels) != len(z):
        raise ValueError(
            f"z and labels must be equally long, got {len(z)} embeddings and {len(labels)} labels"
        )
    if len(z) == 0:
        raise ValueError("z must hold at least one embedding, got an empty batch")
    if dim is not None and z.shape[1] != dim:
        raise ValueError(f"z must have {dim} dimensions, got {z.shape[1]}")
    if num_classes is not None:
        labels = labels.long()  # a bound beyond a narrower type would wrap around
        wrong = (labels < 0) | (labels >= num_classes)
        if wrong.any():
            where = int(wrong.nonzero()[0])
            raise ValueError(
                f"labels must lie in [0, {num_classes}), got {int(labels[where])} at position {where}: "
                + ENCODE
            )
    check_finite(z)
    return labels.to(z.device, torch.long)


def check_finite(z: Tensor) -> None:
    """Raise ``ValueError`` naming the rows of ``z`` that hold NaN or infinity."""
    if math.isfinite(largest_magnitude(z)):  # a quarter of the time of torch.isfinite
        return
    rows = (~torch.isfinite(z)).any(1).nonzero().flatten()
    shown = ", ".join(str(int(row)) for row in rows[:5]) + (", …" if len(rows) > 5 else "")
    raise ValueError(f"z must be finite, got NaN or infinity in {len(rows)} of {len(z)} rows: {shown}")


def largest_magnitude(values: Tensor) -> float:
    """The largest absolute value, without a copy of them all; NaN if one of them is."""
    if not values.numel():
        return 0.0
    low, high = values.detach().aminmax()
    return float(torch.maximum(-low, high))


def check_number(
    name: str, value: float, *, least: float, most: float | None = None, above: bool = False
) -> None:
    """Raise unless ``value`` is a number of at least (or ``above``) ``least``, and at most ``most``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if most is not None and not least <= value <= most:
        raise ValueError(f"{name} must lie in [{least}, {most}], got {value}")
    if not (value > least if above else value >= least):
        raise ValueError(f"{name} must be {'above' if above else 'at least'} {least}, got {value}")


def check_whole(name: str, value: int, *, least: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_options(
    *,
    neighbors: int,
    mean_width: float,
    cov_width: float,
    global_share: float,
    falloff: float,
    few: float,
    scale: str | None,
    search: str,
) -> None:
    """Raise unless these can be the options of neighbour correction."""
    check_whole("neighbors", neighbors, least=0)
    check_number("mean_width", mean_width, least=0, above=True)
    check_number("cov_width", cov_width, least=0, above=True)
    check_number("global_share", global_share, least=0, most=1)
    check_number("falloff", falloff, least=0)
    check_number("few", few, least=0)
    if scale not in ("minmax", None):
        raise unknown("scale", scale, ["minmax", "None"])
    if search not in ("exact", "approximate"):
        raise unknown("search", search, ["exact", "approximate"])
