import importlib

import pytest

from iaa.errors import need, one_line, unknown


def test_unknown_names_the_argument_and_the_nearest_option():
    message = str(unknown("scale", "minmx", ["minmax", "none"]))
    assert "scale" in message
    assert "did you mean 'minmax'" in message


def test_need_names_the_extra_that_installs_the_package():
    with pytest.raises(ImportError, match=r"pip install 'iaa\[faiss\]'"):
        need("no_such_package_anywhere", extra="faiss")


def test_a_missing_package_is_named_with_its_remedy():
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("nothing_of_this_name.inner")
    assert one_line(caught.value) == (
        "nothing_of_this_name is not installed: pip install 'iaa[all]' brings everything"
    )


def test_of_many_names_only_the_near_ones_are_shown():
    names = [f"loss_{number}" for number in range(20)] + ["triplet"]
    assert str(unknown("loss", "triplett", names)) == (
        "loss must be one of 21 names; got 'triplett' (did you mean 'triplet'?)"
    )
    assert "'loss_19'" in str(unknown("loss", "zzz", names))
