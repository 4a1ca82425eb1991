"""The paper's baseline losses, each with its miner, and any loss or miner of pytorch-metric-learning by name.

The paper's nine are assembled here: distances lie between unit vectors (Eq. 1), and losses are reduced as the
paper writes them, summed over pairs or triplets and divided by the number of anchors. All others keep the
defaults of pytorch-metric-learning.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pytorch_metric_learning import distances, losses, miners, reducers
from torch import Tensor, nn

from iaa.boosting.multi_similarity import HardPairs
from iaa.errors import unknown


class Baseline(NamedTuple):
    """A loss and the miner that goes with it: ``loss, miner = iaa.losses.triplet()``."""

    loss: nn.Module
    miner: nn.Module | None


class PerAnchor(reducers.BaseReducer):
    """The sum of all losses over the number of anchors: the paper's (1/n) sum over i."""

    def element_reduction(self, losses: Tensor, _: Any, embeddings: Tensor, __: Any) -> Tensor:
        """Of one loss per element; pairs and triplets likewise."""
        return losses.sum() / len(embeddings)

    pos_pair_reduction = neg_pair_reduction = triplet_reduction = element_reduction


def contrastive(*, pos_margin: float = 0.0, neg_margin: float = 1.0) -> Baseline:
    """Contrastive loss on Euclidean distances, all pairs (Eq. 2)."""
    return Baseline(losses.ContrastiveLoss(pos_margin, neg_margin, reducer=PerAnchor()), None)


def triplet(*, margin: float = 0.2) -> Baseline:
    """Triplet loss over all positives and the hardest negative of each anchor (Eq. 3)."""
    miner = miners.BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard")
    return Baseline(losses.TripletMarginLoss(margin, reducer=PerAnchor()), miner)


def multi_similarity(
    *, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1
) -> Baseline:
    """Multi-similarity loss (Eq. 4) with its miner of hard positives and negatives (Eq. 5-6)."""
    loss = losses.MultiSimilarityLoss(alpha, beta, base, reducer=PerAnchor())
    return Baseline(loss, HardPairs(epsilon))


def triplet_distance(*, margin: float = 0.2, cutoff: float = 0.5, far: float = 1.4) -> Baseline:
    """Triplet loss (Eq. 3) on triplets drawn by distance-weighted sampling."""
    loss = losses.TripletMarginLoss(margin, reducer=PerAnchor())
    return Baseline(loss, miners.DistanceWeightedMiner(cutoff, far))


def margin(*, margin: float = 0.2, boundary: float = 1.2, cutoff: float = 0.5, far: float = 1.4) -> Baseline:
    """Margin loss, which compares both distances with one boundary, with distance-weighted sampling."""
    loss = losses.MarginLoss(margin, beta=boundary, reducer=PerAnchor())
    return Baseline(loss, miners.DistanceWeightedMiner(cutoff, far))


def circle(*, m: float = 0.4, gamma: float = 80.0) -> Baseline:
    """Circle loss over all pairs."""
    return Baseline(losses.CircleLoss(m, gamma, reducer=PerAnchor()), None)


def norm_softmax(num_classes: int, dim: int, *, temperature: float = 0.05) -> Baseline:
    """Softmax over cosine similarities to one proxy per class."""
    return Baseline(losses.NormalizedSoftmaxLoss(num_classes, dim, temperature, reducer=PerAnchor()), None)


def proxy_nca(num_classes: int, dim: int, *, scale: float = 8.0) -> Baseline:
    """Neighbourhood components over squared distances to one proxy per class."""
    distance = distances.LpDistance(power=2)
    loss = losses.ProxyNCALoss(num_classes, dim, softmax_scale=scale, distance=distance, reducer=PerAnchor())
    return Baseline(loss, None)


def soft_triple(
    num_classes: int,
    dim: int,
    *,
    centers: float = 10,
    scale: float = 20.0,
    gamma: float = 0.1,
    margin: float = 0.01,
) -> Baseline:
    """Softmax over several centres per class, between which a sample chooses softly."""
    if centers != int(centers):
        raise ValueError(f"centers must be a whole number, got {centers}")
    loss = losses.SoftTripleLoss(num_classes, dim, int(centers), scale, gamma, margin, reducer=PerAnchor())
    return Baseline(loss, None)


_PAIRS = (contrastive, triplet, multi_similarity, triplet_distance, margin, circle)
PAIRS: dict[str, Callable[..., Baseline]] = {make.__name__: make for make in _PAIRS}
_PROXIES = (norm_softmax, proxy_nca, soft_triple)
PROXIES: dict[str, Callable[..., Baseline]] = {make.__name__: make for make in _PROXIES}

Option = bool | int | float | str
SIZES = ("num_classes", "embedding_size", "descriptors_dim", "l")
"""Arguments of losses that follow from the data and the network."""
SHORT = {"snr": "signal_to_noise_ratio_contrastive", "tcm": "threshold_consistent_margin"}
_NOT_BY_NAME = {"ManifoldLoss", "VICRegLoss", "SelfSupervisedLoss", "MultipleLosses"}  # they take no labels


def build(name: str, *, num_classes: int, dim: int, **options: Option) -> Baseline:
    """One of the paper's losses by name, or any of pytorch-metric-learning by class name or in snake case.

    >>> loss, miner = build("circle", num_classes=10, dim=64, gamma=40.0)
    >>> build("proxy_anchor", num_classes=10, dim=64).loss.num_classes
    10
    """
    return find(name, **options)(num_classes, dim)


def find(name: str, **options: Option) -> Callable[[int, int], Baseline]:
    """Look a loss up and check its options; the result builds it for a number of classes and dimensions."""
    if own := PAIRS.get(name) or PROXIES.get(name):
        _check_options(name, own, options)
        return lambda num_classes, dim: own(*(() if name in PAIRS else (num_classes, dim)), **options)
    classes = _by_key(losses, losses.BaseMetricLossFunction)
    kind = classes.get(_key(SHORT.get(name, name)))
    if kind is None:
        raise unknown("loss", name, sorted({*PAIRS, *PROXIES, *SHORT, *map(_snake, classes.values())}))
    sizes = _required(kind) & {*SIZES}
    if missing := _required(kind) - {*sizes, *options}:
        raise ValueError(f"loss {name} needs the options {', '.join(sorted(missing))}")
    _check_options(name, kind, options)

    def make(num_classes: int, dim: int) -> Baseline:
        needed = {size: num_classes if size == "num_classes" else dim for size in sizes}
        return Baseline(kind(**needed, **options), None)

    return make


def build_miner(name: str, **options: Option) -> nn.Module | None:
    """A miner of pytorch-metric-learning by class name or in snake case; None for ``"none"``.

    >>> type(build_miner("batch_hard")).__name__
    'BatchHardMiner'
    """
    if name == "none":
        return None
    classes = _by_key(miners, miners.BaseMiner)
    if _key(name) not in classes:
        raise unknown("miner", name, sorted({"none", *map(_snake, classes.values())}))
    miner: nn.Module = classes[_key(name)](**options)
    return miner


def with_memory(baseline: Baseline, *, dim: int, size: int) -> Baseline:
    """The loss with a cross-batch memory (XBM): ``size`` originals of the last batches are candidates too."""
    name = type(baseline.loss).__name__
    if name not in losses.CrossBatchMemory.supported_losses():
        raise ValueError(f"memory does not work with {name}: it compares with nothing outside its batch")
    return Baseline(losses.CrossBatchMemory(baseline.loss, dim, size, miner=baseline.miner), None)


def _check_options(loss: str, make: Callable[..., Any], options: dict[str, Option]) -> None:
    """Raise for options that do not exist, and for text where a number is the default."""
    parameters = _parameters(make)
    for name in options:
        if name not in parameters:
            known = [other for other in parameters if other not in (*SIZES, "dim")]
            raise unknown(f"loss_options of {loss}", name, known)
    for name, parameter in parameters.items():
        if isinstance(options.get(name), str) and isinstance(parameter.default, int | float):
            raise ValueError(f"option {name} must be a number, got {options[name]!r}")


def _by_key(module: Any, base: type) -> dict[str, type]:
    """Exported classes by their names without suffix, underscores and case."""
    hidden = {base.__name__, "GenericPairLoss", *_NOT_BY_NAME}
    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and issubclass(kind, base)]
    return {_key(kind.__name__): kind for kind in kinds if kind.__name__ not in hidden}


def _key(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower().removesuffix("loss").removesuffix("miner")


def _snake(kind: type) -> str:
    """``ProxyAnchorLoss`` as ``proxy_anchor``, ``NTXentLoss`` as ``nt_xent``."""
    name = kind.__name__.removesuffix("Loss").removesuffix("Miner")
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return spaced.lower()


def _required(kind: type) -> set[str]:
    """Arguments without a default."""
    needed = {name for name, parameter in _parameters(kind).items() if parameter.default is parameter.empty}
    return needed - {"mat_based_loss", "loss"}


def _parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Named arguments of a function or class, those of base classes that are passed on included."""
    named: dict[str, inspect.Parameter] = {}
    bases = (
        [vars(base)["__init__"] for base in make.__mro__ if "__init__" in vars(base)]
        if isinstance(make, type)
        else [make]
    )
    for function in bases:
        parameters = inspect.signature(function).parameters.values()
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters:
            if parameter.kind in kinds and parameter.name != "self":
                named.setdefault(parameter.name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    return named
