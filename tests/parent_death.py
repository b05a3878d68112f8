"""Servers of tests that end with the process that started them, also when it is killed."""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(by: signal.Signals) -> None:
    """Called in the process of the server, before it begins."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
