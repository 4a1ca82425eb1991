from collections.abc import Iterator
from pathlib import Path

import pytest

import serving
from iaa.serve.service import Service


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    return serving.trained(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="session")
def service(run) -> Service:
    made = serving.service(run, upload_bytes=200_000, pixels=1_000_000, seconds=20)
    made.insights.wait(60)
    return made


@pytest.fixture(scope="session")
def base(service) -> Iterator[str]:
    with serving.served(service) as address:
        yield address


@pytest.fixture
def photo(run) -> bytes:
    return (run.parents[1] / "pictures" / "light red" / "0.png").read_bytes()
