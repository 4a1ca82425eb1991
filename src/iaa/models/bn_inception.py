"""Inception with batch normalisation (Ioffe and Szegedy, 2015), under the keys of the public weights."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class _Block(NamedTuple):
    """Channels that leave each branch of an inception block; one without a 1x1 branch halves the map."""

    one_by_one: int
    three_reduce: int
    three: int
    double_reduce: int
    double: int
    pool: str
    pool_proj: int


_BLOCKS = {
    "3a": _Block(64, 64, 64, 64, 96, "avg", 32),
    "3b": _Block(64, 64, 96, 64, 96, "avg", 64),
    "3c": _Block(0, 128, 160, 64, 96, "max", 0),
    "4a": _Block(224, 64, 96, 96, 128, "avg", 128),
    "4b": _Block(192, 96, 128, 96, 128, "avg", 128),
    "4c": _Block(160, 128, 160, 128, 160, "avg", 128),
    "4d": _Block(96, 128, 192, 160, 192, "avg", 128),
    "4e": _Block(0, 128, 192, 192, 256, "max", 0),
    "5a": _Block(352, 192, 320, 160, 224, "avg", 128),
    "5b": _Block(352, 192, 320, 192, 224, "max", 128),
}


class BNInception(nn.Module):
    """RGB images to maps of 1024 channels, 1/32 of the size; 10.3 million parameters.

    The public weights were trained by Caffe on BGR images of 0..255 less their mean, so the channels are
    flipped here: give RGB in that range, less (128, 117, 104).
    """

    def __init__(self) -> None:
        super().__init__()
        self._convolution("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self._convolution("conv2_3x3_reduce", 64, 64, kernel=1)
        self._convolution("conv2_3x3", 64, 192, kernel=3)
        channels = 192
        for name, block in _BLOCKS.items():
            channels = self._inception(f"inception_{name}", channels, block)

    def _convolution(self, name: str, channels: int, width: int, *, kernel: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(width))

    def _inception(self, name: str, channels: int, block: _Block) -> int:
        """Add the block's layers and return how many channels come out of it."""
        stride = 1 if block.one_by_one else 2
        if block.one_by_one:
            self._convolution(f"{name}_1x1", channels, block.one_by_one, kernel=1)
        self._convolution(f"{name}_3x3_reduce", channels, block.three_reduce, kernel=1)
        self._convolution(f"{name}_3x3", block.three_reduce, block.three, kernel=3, stride=stride)
        self._convolution(f"{name}_double_3x3_reduce", channels, block.double_reduce, kernel=1)
        self._convolution(f"{name}_double_3x3_1", block.double_reduce, block.double, kernel=3)
        self._convolution(f"{name}_double_3x3_2", block.double, block.double, kernel=3, stride=stride)
        if block.pool_proj:
            self._convolution(f"{name}_pool_proj", channels, block.pool_proj, kernel=1)
        return block.one_by_one + block.three + block.double + (block.pool_proj or channels)

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 1024 h w"]:
        """Maps of 1024 channels, before the pooling."""
        maps = self._run("conv1_7x7_s2", images.flip(1))
        maps = F.max_pool2d(maps, 3, stride=2, ceil_mode=True)
        maps = self._run("conv2_3x3", self._run("conv2_3x3_reduce", maps))
        maps = F.max_pool2d(maps, 3, stride=2, ceil_mode=True)
        for name, block in _BLOCKS.items():
            maps = self._run_inception(f"inception_{name}", block, maps)
        return maps

    def _run(self, name: str, maps: Tensor) -> Tensor:
        convolved: Tensor = self.get_submodule(name)(maps)
        return F.relu(self.get_submodule(f"{name}_bn")(convolved), inplace=True)

    def _run_inception(self, name: str, block: _Block, maps: Tensor) -> Tensor:
        branches = [self._run(f"{name}_1x1", maps)] if block.one_by_one else []
        branches.append(self._run(f"{name}_3x3", self._run(f"{name}_3x3_reduce", maps)))
        double = self._run(f"{name}_double_3x3_1", self._run(f"{name}_double_3x3_reduce", maps))
        branches.append(self._run(f"{name}_double_3x3_2", double))
        pooled = _pool(maps, block)
        branches.append(self._run(f"{name}_pool_proj", pooled) if block.pool_proj else pooled)
        return torch.cat(branches, 1)


def _pool(maps: Tensor, block: _Block) -> Tensor:
    if block.pool == "avg":
        return F.avg_pool2d(maps, 3, stride=1, padding=1)
    if block.pool_proj:
        return F.max_pool2d(maps, 3, stride=1, padding=1)
    return F.max_pool2d(maps, 3, stride=2, ceil_mode=True)
