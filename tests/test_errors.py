import pytest

from iaa.errors import need, unknown


def test_unknown_names_the_argument_and_the_nearest_option():
    message = str(unknown("scale", "minmx", ["minmax", "none"]))
    assert "scale" in message
    assert "did you mean 'minmax'" in message


def test_need_names_the_extra_that_installs_the_package():
    with pytest.raises(ImportError, match=r"pip install 'iaa\[faiss\]'"):
        need("no_such_package_anywhere", extra="faiss")
