"""A backbone, a pooling and a linear head: images in, un-normalised embeddings out."""

from typing import Any, Literal, TypedDict

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iaa.errors import unknown
from iaa.models.heads import HeadKind, head_dim, head_name, make_head
from iaa.models.weights import Loaded

POOLS = ("avg", "avg+max")


class Preprocessing(TypedDict):
    """What the backbone expects of its images, RGB in [0, 1]: the keywords of the image transform."""

    size: int
    resize: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: Literal["bilinear", "bicubic"]
    aspect: Literal["squeeze", "keep"]


class Embedder(nn.Module):
    """The paper's f: ``head(pool(backbone(images)))``, not normalised.

    ``dim=None`` leaves the head out, so that the pooled features of the backbone come through. ``freeze_bn``
    keeps the running statistics of the batch normalisation as they are; its scales and shifts still learn.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        features: int,
        preprocessing: Preprocessing,
        dim: int | None = 512,
        head: HeadKind = "linear",
        pool: str = "avg",
        freeze_bn: bool = False,
        freeze_backbone: bool = False,
        name: str = "custom",
    ) -> None:
        super().__init__()
        if pool not in POOLS:
            raise unknown("pool", pool, POOLS)
        self.backbone = backbone
        self.head: nn.Module = make_head(head, features, dim)
        self.dim = head_dim(self.head, features)
        self.features = features
        self.preprocessing = preprocessing
        self.own_size = preprocessing["size"]
        """Side of the images that the backbone was made for; ``preprocessing`` may have another."""
        self.pool = pool
        self.name = name
        self.loaded: Loaded | None = None
        self.freeze_bn = freeze_bn
        self.channels_last = True
        """The memory format that images should have: channels last is faster for convolutions mostly."""
        self.flip = False
        """Whether an embedding is the mean of those of an image and of its mirror image, each of length 1."""
        self.freeze_backbone(freeze_backbone)

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch {self.dim}"]:
        """Un-normalised embeddings of images that went through a transform with ``preprocessing``."""
        if not self.flip:
            return self._embed(images)
        return (F.normalize(self._embed(images)) + F.normalize(self._embed(images.flip(3)))) / 2

    def _embed(self, images: Tensor) -> Tensor:
        features = self.backbone(images)
        if features.ndim == 4:  # some timm models pool by themselves
            average = features.mean((2, 3))
            features = average + features.amax((2, 3)) if self.pool == "avg+max" else average
        embeddings: Tensor = self.head(features)
        return embeddings

    def freeze_backbone(self, frozen: bool = True) -> "Embedder":
        """Train the head alone (``frozen``), or everything again."""
        self.backbone_frozen = frozen
        self.backbone.requires_grad_(not frozen)
        return self.train(self.training)

    def train(self, mode: bool = True) -> "Embedder":
        """As in torch, except that what is frozen stays in evaluation mode."""
        super().train(mode)
        if self.backbone_frozen:
            self.backbone.eval()
        if self.freeze_bn:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def parameter_groups(
        self, lr: float = 1e-4, head_factor: float = 10.0, weight_decay: float = 4e-4
    ) -> list[dict[str, Any]]:
        """Groups for an optimiser: the head learns ``head_factor`` times faster (paper, Section VI-B)."""
        rates = {"backbone": lr, "head": lr * head_factor}
        groups: list[dict[str, Any]] = []
        for part, rate in rates.items():
            learning = [p for p in self.get_submodule(part).parameters() if p.requires_grad]
            if learning:
                groups.append({"name": part, "params": learning, "lr": rate, "weight_decay": weight_decay})
        return groups

    def describe(self) -> str:
        """One line: the network, its size, its features and its input."""
        millions = sum(p.numel() for p in self.backbone.parameters()) / 1e6
        head = head_name(self.head)
        head = head if head == "no head" else f"{head} to {self.dim}"
        frozen = (
            "backbone" if self.backbone_frozen else "batch-norm statistics" if self.freeze_bn else "nothing"
        )
        return (
            f"{self.name}: {millions:.1f} M parameters, {self.features} features ({self.pool} pooling), "
            f"{head}, {self.preprocessing['size']} px, {frozen} frozen"
        )
