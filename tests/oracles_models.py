"""BN-Inception written out, and state dicts under the key sets of the published files."""

from pathlib import Path

import torch
from torch.nn import functional as F

KEYS = Path(__file__).parent / "models" / "keys"


def published(name, *, counters=True):
    """Random entries under the published keys; the oldest files have no ``num_batches_tracked``.

    A line is ``convolution batch-norm out in kernel [bias]`` or ``linear out in``.
    """
    generator = torch.Generator().manual_seed(0)
    state = {}
    for line in (KEYS / f"{name}.txt").read_text().splitlines():
        words = [int(word) if word.isdigit() else word for word in line.split()]
        if isinstance(words[1], int):
            linear, out, channels = words
            state[f"{linear}.weight"] = torch.randn(out, channels, generator=generator)
            state[f"{linear}.bias"] = torch.randn(out, generator=generator)
            continue
        convolution, norm, out, channels, kernel = words[:5]
        scale = (2 / (channels * kernel**2)) ** 0.5
        state[f"{convolution}.weight"] = scale * torch.randn(
            out, channels, kernel, kernel, generator=generator
        )
        if words[5:]:
            state[f"{convolution}.bias"] = torch.randn(out, generator=generator)
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{norm}.{part}"] = torch.rand(out, generator=generator) + 0.5
        if counters:
            state[f"{norm}.num_batches_tracked"] = torch.tensor(7)
    return state


def layer(network, name, x):
    state = network.state_dict()
    weight = state[f"{name}.weight"]
    padding = {7: 3, 3: 1, 1: 0}[weight.shape[-1]]
    halves = name in {
        "conv1_7x7_s2",
        *(f"inception_{b}_{c}" for b in ("3c", "4e") for c in ("3x3", "double_3x3_2")),
    }
    y = F.conv2d(x, weight, state[f"{name}.bias"], stride=2 if halves else 1, padding=padding)
    mean, variance = state[f"{name}_bn.running_mean"], state[f"{name}_bn.running_var"]
    y = (y - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
    y = y * state[f"{name}_bn.weight"][:, None, None] + state[f"{name}_bn.bias"][:, None, None]
    return y.clamp(min=0)


def pooled(x, *, stride, average):
    """3 x 3 windows around every cell (stride 1) or from the corner on (stride 2), cut at the edge."""
    height, width = x.shape[2:]
    first = -1 if stride == 1 else 0
    rows = []
    for top in range(first, height - 1, stride):
        row = []
        for left in range(first, width - 1, stride):
            window = x[:, :, max(top, 0) : top + 3, max(left, 0) : left + 3]
            row.append(window.sum((2, 3)) / 9 if average else window.amax((2, 3)))  # zeros beyond the edge
        rows.append(torch.stack(row, -1))
    return torch.stack(rows, -2)


def bn_inception(network, bgr):
    x = layer(network, "conv1_7x7_s2", bgr)
    x = pooled(x, stride=2, average=False)
    x = layer(network, "conv2_3x3", layer(network, "conv2_3x3_reduce", x))
    x = pooled(x, stride=2, average=False)
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        name = f"inception_{block}"
        three = layer(network, f"{name}_3x3", layer(network, f"{name}_3x3_reduce", x))
        double = layer(network, f"{name}_double_3x3_1", layer(network, f"{name}_double_3x3_reduce", x))
        double = layer(network, f"{name}_double_3x3_2", double)
        if block in ("3c", "4e"):
            x = torch.cat([three, double, pooled(x, stride=2, average=False)], 1)
        else:
            projected = layer(network, f"{name}_pool_proj", pooled(x, stride=1, average=block != "5b"))
            x = torch.cat([layer(network, f"{name}_1x1", x), three, double, projected], 1)
    return x
