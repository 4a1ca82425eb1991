"""Any loss and miner of pytorch-metric-learning with synthetic candidates (Eq. 18-20)."""

from iaa.boosting.boosted_loss import BoostedLoss

__all__ = ["BoostedLoss"]
