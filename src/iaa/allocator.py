"""Keep freed memory: on glibc a training spends much of its time in page faults otherwise."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
_KEEP = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc not to hand freed blocks back to the system; False where there is no glibc.

    A network frees and takes the same large blocks at every step. Handed back, each is a new mapping that
    the kernel fills with zeros page by page.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 2**30)) and bool(mallopt(M_TRIM_THRESHOLD, _KEEP))
