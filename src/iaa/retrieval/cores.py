"""Work on every core with threads of our own: operations inside a thread then need not wait for each other."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch


def on_every_core(work: Callable[[], None], device: torch.device) -> None:
    """Run ``work`` in as many threads as torch may use, each of which runs torch's operations alone.

    Threads over blocks beat threads inside each operation: a block stays in its core's cache, and no core waits
    for another after every small step, which is ruinous where other programs keep the cores busy too.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    torch.set_num_threads(
        1 if device.type == "cpu" else torch.get_num_threads()
    )  # the threads below inherit it
    try:
        with ThreadPoolExecutor(threads) as pool:
            for thread in [pool.submit(work) for _ in range(threads)]:
                thread.result()
    finally:
        if device.type == "cpu":
            torch.set_num_threads(threads)
