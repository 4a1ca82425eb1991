import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iaa.data.image_ref import ImageRef, RowRef, box_array, image_path, parse_ref

PATHS = st.text(min_size=1, max_size=30).filter(lambda text: "#" not in text)
SIDES = st.integers(-(10**6), 10**6).map(lambda eighths: eighths / 8)


@given(PATHS, st.none() | st.tuples(SIDES, SIDES, SIDES, SIDES))
@settings(deadline=None)
def test_what_is_formatted_is_parsed_to_the_same(path, box):
    ref = ImageRef(path, box)
    assert parse_ref(str(ref)) == ref


def test_a_box_is_written_as_left_top_width_height():
    assert str(ImageRef("a b.png", (1, 2.5, 11, 22.5))) == "a b.png#xywh=1,2.5,10,20"
    assert str(ImageRef("a.png", (0, 0, 1234567, 1))) == "a.png#xywh=0,0,1234567,1"
    assert str(ImageRef("a.png")) == "a.png"


@pytest.mark.parametrize(
    "text", ["a#b.png", "a.png#xywh=1,2,3", "a.png#xywh=1,2,3,x", "a#xywh=e,e,e,e", "a#row="]
)
def test_a_malformed_fragment_is_part_of_the_path(text):
    assert parse_ref(text) == ImageRef(text)


def test_relative_paths_lie_below_the_root():
    assert parse_ref("a.png#xywh=0,0,2,2", "/data") == ImageRef("/data/a.png", (0, 0, 2, 2))
    assert parse_ref("/x/a.png", "/data") == ImageRef("/x/a.png")


def test_rows_of_vectors_are_rows_not_images():
    ref = RowRef("/data/v.npz", 3)
    assert parse_ref(str(ref)) == ref
    assert image_path(str(ref)) is None
    assert image_path("a.png#xywh=0,0,2,2") == "a.png"


def test_nan_means_the_whole_image():
    assert ImageRef.of("a", np.full(4, np.nan)) == ImageRef("a")
    assert ImageRef.of("a", [1, np.nan, 2, 3]).box is None
    assert ImageRef.of("a", np.array([1.0, 2, 3, 4])).box == (1, 2, 3, 4)
    assert box_array([ImageRef("a"), ImageRef("b")]) is None
    boxes = box_array([ImageRef("a"), ImageRef("b", (1, 2, 3, 4))])
    assert np.isnan(boxes[0]).all()
    assert boxes[1].tolist() == [1, 2, 3, 4]
