"""The API against its own document and against broken files, both made up at random."""

import io
import re
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tiny_server import post

CONFIG = """
[[operations]]
include-method = "POST"

[operations.checks]
positive_data_acceptance.enabled = false  # most bytes are no image, which a schema cannot say
"""


def test_generated_requests_get_documented_responses(base, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    script = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
    arguments = ["--max-examples", "8", "--seed", "0", "--phases", "coverage,fuzzing", "--no-color"]
    arguments += ["--request-timeout", "20", "--max-failures", "3"]
    done = subprocess.run(
        [sys.executable, "-c", script, "run", f"{base}/openapi.json", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"Selected: (\d+)/\1\n\s+Tested: \1\n", done.stdout), done.stdout[-1000:]
    generated = re.search(r"(\d+) generated, \1 passed", done.stdout)
    assert int(generated[1]) > 100


def encoded(kind: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


KINDS = {kind: encoded(kind) for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")}


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12),
    keep=st.floats(0, 1),
)
def test_an_image_with_wrong_bytes_is_read_or_refused(base, kind, changes, keep):
    content = bytearray(KINDS[kind])
    for place, value in changes:
        content[int(place**2 * len(content))] = value  # rather near the header
    answer = post(base, bytes(content[: max(1, round(keep * len(content)))]), top=1)
    assert answer.status_code in (200, 413, 422)
    assert answer.status_code == 200 or answer.json()["error"]
