from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny_server
from iaa.serve.service import Service


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    return tiny_server.trained(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="session")
def service(run) -> Service:
    made = tiny_server.service(run, upload_bytes=200_000, pixels=1_000_000, seconds=20)
    made.analysis.wait(60)
    return made


@pytest.fixture(scope="session")
def base(service) -> Iterator[str]:
    with tiny_server.served(service) as address:
        yield address


@pytest.fixture
def photo(run) -> bytes:
    return (run.parents[1] / "images" / "light red" / "0.png").read_bytes()
