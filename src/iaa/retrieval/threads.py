"""Work on every core with threads of our own, whose operations need not wait for each other."""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import torch


def on_every_core(work: Callable[[], None], device: torch.device) -> None:
    """Run ``work`` in as many threads as torch may use, each of which runs torch's operations alone.

    Threads over blocks beat threads inside each operation: a block stays in its core's cache, and no core
    waits for another after every small step, which is ruinous where other programs keep the cores busy too.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    if threads == 1:
        return work()
    torch.set_num_threads(1)  # which threads take over when they first use torch
    try:
        pool = _pool(threads, os.getpid())
        jobs = [pool.submit(work) for _ in range(threads)]
        wait(jobs)  # for all, before an error of one is raised
        for job in jobs:
            job.result()
    finally:
        torch.set_num_threads(threads)


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Kept for the next call: to start threads takes longer than to score a small set."""
    return ThreadPoolExecutor(threads, "iaa-core")
