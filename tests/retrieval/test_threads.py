import multiprocessing
from threading import Barrier, current_thread

import pytest
import torch

from iaa.retrieval.threads import on_every_core


def names() -> set[str]:
    """Of the threads that worked at the same time."""
    meet, seen = Barrier(2, timeout=20), []

    def work() -> None:
        meet.wait()
        seen.append((current_thread().name, torch.get_num_threads()))

    on_every_core(work, torch.device("cpu"))
    assert [number for _, number in seen] == [1, 1]
    return {name for name, _ in seen}


def test_threads_work_at_the_same_time_and_are_kept():
    assert len(names()) == 2
    assert names() == names()
    assert torch.get_num_threads() == 2


def test_an_error_reaches_the_caller():
    def fail() -> None:
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        on_every_core(fail, torch.device("cpu"))
    assert torch.get_num_threads() == 2


def test_a_forked_process_has_threads_of_its_own():
    names()
    process = multiprocessing.get_context("fork").Process(target=names)
    process.start()
    process.join(60)
    assert process.exitcode == 0
