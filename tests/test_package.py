import subprocess
import sys

import pytest

import iaa

HEAVY = [
    "pytorch_metric_learning",
    "timm",
    "torchvision",
    "faiss",
    "matplotlib",
    "scipy",
    "sklearn",
    "pandas",
]


def test_import_is_light():
    code = f"import sys, iaa; print([name for name in {HEAVY!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


@pytest.mark.parametrize("name", iaa.__all__)
def test_public_names_are_there(name):
    assert getattr(iaa, name).__doc__


def test_unknown_names_are_no_names():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = iaa.nothing
