import os
from collections.abc import Iterator

import pytest
import torch
from jaxtyping import config

# on a busy machine threads wait for each other more than they bring; in other processes too
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the type checks that only tests have: what a user sees who passes nonsense."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def compiler(unchecked: None) -> Iterator[None]:
    """A compiler that remembers nothing of other tests: it gives up on code it has met too often."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
