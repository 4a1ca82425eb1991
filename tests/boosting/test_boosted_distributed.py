"""Two real processes: a boosted loss inside PML's wrapper sees the embeddings of all ranks."""

import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

import iaa
from iaa.boosting import BoostedLoss


def criterion(z, labels) -> BoostedLoss:
    augment = iaa.IAA(3, 4, strength=0.0, copies=2).fit(z, labels)
    return BoostedLoss(pml.ContrastiveLoss(), augment, miners.MultiSimilarityMiner())


def whole() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(18, 4, generator=generator), torch.arange(18) % 3


def one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    z, labels = whole()
    mine = slice(9 * rank, 9 * rank + 9)
    wrapped = DistributedLossWrapper(criterion(z, labels))
    value = wrapped(z[mine], labels[mine])
    without_miner = BoostedLoss(pml.ContrastiveLoss(), wrapped.loss.augment)
    efficient = DistributedLossWrapper(without_miner, efficient=True)(z[mine], labels[mine])
    torch.save({"value": value, "efficient": efficient}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_the_wrapper_goes_outside(tmp_path: Path):
    mp.spawn(one_rank, (str(tmp_path),), nprocs=2)
    expected = 2 * criterion(*whole())(*whole())  # PML multiplies by the number of processes
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(found["value"], expected)
        assert found["efficient"].isfinite()


def test_in_one_process_it_changes_nothing():
    z, labels = whole()
    plain = criterion(z, labels)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "DistributedLossWrapper is being used in a non-distributed")
        assert torch.equal(DistributedLossWrapper(plain)(z, labels), plain(z, labels))
