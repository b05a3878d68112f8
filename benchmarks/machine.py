"""The machine and the software of a run, without anything that names the machine or its folders."""

import os
import platform
import re
import sqlite3
from pathlib import Path

import apsw
import msgspec


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    memory_gb: float
    load: float  # over the minute before the run: other work makes every figure worse
    kernel: str
    filesystem: str
    python: str
    sqlite_apsw: str
    sqlite_python: str


def describe_machine(folder: Path) -> Machine:
    """What the figures depend on; `folder` is where the databases will lie."""
    return Machine(
        cpu=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        load=round(os.getloadavg()[0], 2),
        kernel=f"{platform.system()} {platform.release()}",
        filesystem=filesystem_type(folder),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite_apsw=apsw.sqlite_lib_version(),
        sqlite_python=sqlite3.sqlite_version,
    )


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def filesystem_type(folder: Path) -> str:
    """The type of the mount that holds the folder: the longest mount point that leads to it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(len(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(holding)[1]


def without_folders(text: str) -> str:
    """The same text with each absolute path cut to its last part: results are published."""
    return re.sub(r"(?<![\w.])(/[^\s/'\"]+)+/", "…/", text)
