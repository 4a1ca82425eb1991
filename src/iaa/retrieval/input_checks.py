"""What scoring and searching accept, and one clear line for what they do not."""

from collections.abc import Sequence

import torch
from torch import Tensor

_ROWS = 8192


def as_vectors(z: object, name: str = "z") -> Tensor:
    """A finite (N, D) floating tensor, on the device it came on."""
    vectors = _tensor(z, name, "numbers of shape (N, D)")
    if vectors.ndim != 2 or not vectors.is_floating_point():
        kind = str(vectors.dtype).removeprefix("torch.")
        raise ValueError(
            f"{name} must be floating numbers of shape (N, D), got {kind} of shape {_shape(vectors)}"
        )
    if not vectors.numel():
        raise ValueError(f"{name} must hold at least one vector, got shape {_shape(vectors)}")
    vectors = vectors.detach()
    if not bool(vectors.sum().isfinite()):  # true for finite rows as well where the sum overflows
        bad = torch.cat([~block.isfinite().all(1) for block in vectors.split(_ROWS)]).nonzero()[:, 0]
        if len(bad):
            raise ValueError(
                f"{name} must be finite, got NaN or infinity in {len(bad)} of {len(vectors)} rows, "
                f"first {bad[0]}"
            )
    return vectors


def as_labels(labels: object, size: int, name: str = "labels") -> Tensor:
    """(N,) class numbers as int64, whatever integer type they came in."""
    numbers = _tensor(labels, name, "integers of shape (N,)")
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {str(numbers.dtype).removeprefix('torch.')}")
    if numbers.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), one per vector, got {_shape(numbers)}")
    return numbers.long()


def check_sets(z: Tensor, labels: Tensor, gallery: tuple[Tensor, Tensor] | None, ks: Sequence[int]) -> None:
    """Refuse what cannot be scored: other dimensions, too large a K, a single class, no positives at all."""
    target, target_labels = (z, labels) if gallery is None else gallery
    if z.shape[1] != target.shape[1]:
        raise ValueError(f"the gallery must have the queries' dimension {z.shape[1]}, got {target.shape[1]}")
    most = len(target) - (gallery is None)
    wrong = [k for k in ks if not 1 <= k <= most]
    if wrong:
        raise ValueError(f"ks must lie in [1, {most}], the neighbours a query has, got {wrong[0]}")
    if bool((labels == labels[0]).all()) and bool((target_labels == labels[0]).all()):
        raise ValueError(
            f"labels must hold two classes or more, got only class {int(labels[0])}: all neighbours are right"
        )


def _tensor(given: object, name: str, expected: str) -> Tensor:
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must be {expected}, got a {type(given).__name__}") from error


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
