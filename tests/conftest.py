from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config

torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other more than they bring


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the type checks that only tests have: what a user sees who passes nonsense."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
