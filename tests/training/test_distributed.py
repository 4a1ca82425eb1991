"""Gathering with gradient between two real processes that bring different numbers of samples."""

from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from iaa import IAA
from iaa.training import distributed

SIZES = (3, 5)


def whole() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 4, generator=generator), torch.arange(8) % 3, torch.randn(4, 2, generator=generator)


def loss_of(z: torch.Tensor) -> torch.Tensor:
    return (z @ z.T).exp().mean()


def one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    x, labels, start = whole()
    mine = slice(0, SIZES[0]) if rank == 0 else slice(SIZES[0], None)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        model.module.weight.copy_(start.T)
    z, all_labels = distributed.gather(model(x[mine]), labels[mine])
    loss_of(z).backward()
    augment = IAA(3, 2).update(z.detach(), all_labels)
    norm = torch.nn.BatchNorm1d(4)
    norm(x[mine])
    distributed.share_buffers(norm)
    found = {
        "running": norm.running_mean,
        "gradient": model.module.weight.grad,
        "z": z.detach(),
        "labels": all_labels,
    }
    torch.save({**found, **augment.state_dict()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_gathered_embeddings_have_the_gradient_of_the_common_loss(tmp_path):
    mp.spawn(one_rank, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)  # statistics too
    x, labels, start = whole()
    weight = start.T.clone().requires_grad_()
    z = x @ weight.T
    loss_of(z).backward()
    torch.testing.assert_close(first["z"], z.detach())
    assert torch.equal(first["labels"], labels)
    torch.testing.assert_close(first["gradient"], weight.grad)
    torch.testing.assert_close(first["running"], 0.1 * x[: SIZES[0]].mean(0))  # of the first rank


def test_a_process_alone_passes_everything_through():
    z, labels = torch.randn(2, 3, requires_grad=True), torch.arange(2)
    assert distributed.gather(z, labels) == (z, labels)
    assert distributed.collect(z) is z
