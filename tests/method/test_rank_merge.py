"""Two real processes, each with its part of the data, must end with the statistics of the whole."""

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from iaa.method.augment import IAA
from iaa.method.whitening import Whitening


def whole() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(50, 3, generator=generator) + 2, torch.arange(50) % 6


def one_rank(rank: int, folder: str, covariance: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    z, labels = whole()
    mine = slice(0, 17) if rank == 0 else slice(17, 50)
    augment = IAA(6, 3, covariance=covariance).fit(z[mine], labels[mine]).sync()
    torch.save(augment.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_ranks_agree_to_the_bit_and_with_one_process(tmp_path: Path, covariance: str):
    mp.spawn(one_rank, (str(tmp_path), covariance), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    alone = IAA(6, 3, covariance=covariance).fit(*whole()).state_dict()
    assert torch.equal(first["count"], alone["count"])
    torch.testing.assert_close(first["own_variance"], alone["own_variance"], rtol=1e-5, atol=1e-6)
    if covariance == "full":
        assert torch.equal(first["rows"], alone["rows"])


def whitening_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    z, labels = whole()
    mine = slice(0, 17) if rank == 0 else slice(17, 50)
    labels = torch.where(labels == 5, 5 + torch.arange(50) // 17, labels)  # classes only one rank knows
    white = Whitening(dim=2).update(z[mine], labels[mine]).sync()
    torch.save(white.state_dict(), f"{folder}/{rank}.pt")
    if rank == 0:
        torch.save(Whitening(dim=2).fit(z, labels).state_dict(), f"{folder}/alone.pt")
    dist.destroy_process_group()


def test_whitening_of_ranks_is_that_of_the_whole(tmp_path: Path):
    mp.spawn(whitening_rank, (str(tmp_path),), nprocs=2)
    first, second, alone = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("0", "1", "alone")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.testing.assert_close(first["center"], alone["center"])
    torch.testing.assert_close(first["weight"].abs(), alone["weight"].abs(), rtol=1e-4, atol=1e-5)
