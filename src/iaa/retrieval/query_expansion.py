"""Query expansion and database augmentation: an embedding moves towards its nearest neighbours."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from iaa.method.checks import check_number, check_whole
from iaa.retrieval.input_checks import as_vectors
from iaa.retrieval.knn import knn

_BLOCK = 4096


def expand(
    z: Tensor, gallery: Tensor | None = None, *, neighbors: int = 2, alpha: float = 1.0
) -> Float[Tensor, "N D"]:
    """Each embedding plus its nearest of the gallery, weighted by similarity to the power of ``alpha``.

    With a gallery this is alpha query expansion (Radenovic et al. 2018). Without one, every embedding is
    expanded by the others of its own set, itself left out: database augmentation. The result has unit length.
    ``neighbors`` should stay well below the images of a class in the gallery: the rest are of other classes.
    """
    check_whole("neighbors", neighbors, least=0)
    check_number("alpha", alpha, least=0)
    own = F.normalize(as_vectors(z, "z").float(), dim=1)
    others = own if gallery is None else F.normalize(as_vectors(gallery, "gallery").float(), dim=1)
    neighbors = min(neighbors, len(others) - (gallery is None))
    if neighbors == 0:
        return own
    nearest = knn(own, None if gallery is None else others, k=neighbors)
    expanded = torch.empty_like(own)
    for rows in torch.arange(len(own), device=own.device).split(_BLOCK):
        weight = nearest.value[rows].clamp(min=0).pow(alpha)
        lent = torch.einsum("nk,nkd->nd", weight, others[nearest.index[rows]])
        expanded[rows] = F.normalize(own[rows] + lent, dim=1)
    return expanded
