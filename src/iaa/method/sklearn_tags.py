"""What scikit-learn asks an estimator for; imported only when it asks."""

from typing import Any


def sklearn_tags() -> Any:
    """Tags of an estimator that needs labels to be fitted; pipelines ask their last step for them."""
    from sklearn.base import BaseEstimator

    tags = BaseEstimator().__sklearn_tags__()
    tags.target_tags.required = True
    return tags
