"""Two real processes, each with its part of the data, must end with the statistics of the whole."""

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from iaa.method.augment import IAA


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
