"""A small convolutional network for images of 32 to 64 pixels, trained from scratch in minutes on a CPU."""

from torch import nn


class ConvNet(nn.Sequential):
    """Four blocks of convolution, batch normalisation and ReLU: maps of 256 channels, 1/16 of the size.

    Every block halves the map by its stride: to convolve first and pool afterwards takes about three times as
    long a step.
    """

    features = 256

    def __init__(self) -> None:
        super().__init__(
            *_block(3, 32, kernel=5),
            *_block(32, 64),
            *_block(64, 128),
            *_block(128, self.features),
        )


def _block(channels: int, width: int, *, kernel: int = 3) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(channels, width, kernel, stride=2, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)
