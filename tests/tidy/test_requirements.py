"""The lists of dependencies agree: pyproject.toml, the .in files, and the locks that script/lock compiles from them."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.tree import ROOT

LOCKS = sorted(path.stem for path in (ROOT / "requirements").glob("*.in"))


def read_project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


def read_requirements(name: str) -> set[str]:
    """The requirements of a list, without comments and without references to other lists."""
    lines = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith(("#", "-"))}


def canonical_name(requirement: str) -> str:
    """The name of a package as locks write it, without version and marker."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, f"{requirement!r} names no package"
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def read_lock(name: str) -> dict[str, str]:
    """The entries of a lock by package, each with its hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^\s*#.*\n?", "", text))
    return {canonical_name(entry): entry.strip() for entry in entries if entry.strip()}


def test_the_core_list_is_what_the_package_depends_on() -> None:
    assert read_requirements("core") == set(read_project()["dependencies"])


def test_the_lists_that_bootstrap_installs_hold_every_extra() -> None:
    extras = read_project()["optional-dependencies"]
    installed = read_requirements("dev") | read_requirements("spark")
    assert {one for name, extra in extras.items() if name != "spark-connect" for one in extra} <= installed


def test_the_extra_for_spark_connect_has_that_of_spark_and_a_list_of_its_own() -> None:
    extra = set(read_project()["optional-dependencies"]["spark-connect"])
    assert extra == {"headwater[spark]"} | read_requirements("spark-connect")


@pytest.mark.parametrize("name", LOCKS)
def test_everything_listed_is_locked(name: str) -> None:
    assert {canonical_name(requirement) for requirement in read_requirements(name)} <= set(read_lock(name))


@pytest.mark.parametrize("name", LOCKS)
def test_everything_locked_has_one_version_and_hashes(name: str) -> None:
    loose = [entry for entry in read_lock(name).values() if "==" not in entry or "--hash=sha256:" not in entry]
    assert loose == []


def test_the_development_lock_holds_the_versions_of_the_core_lock() -> None:
    core, development = read_lock("core"), read_lock("dev")
    assert {name: development.get(name) for name in core} == core


def test_the_development_lock_holds_the_versions_of_the_serving_lock() -> None:
    """Or a .venv that was made for serving could not be completed."""
    serving, development = read_lock("serve"), read_lock("dev")
    assert {name: development.get(name) for name in serving} == serving
    assert read_requirements("serve") <= read_requirements("dev")


def test_serving_needs_nothing_that_is_there_for_developing() -> None:
    tools = {"pytest", "mypy", "ruff", "uv", "pyspark", "hypothesis", "django", "fastapi"}
    assert not tools & set(read_lock("serve"))


def test_every_lock_is_compiled_by_the_script() -> None:
    script = (ROOT / "script/lock").read_text(encoding="utf-8")
    order = re.search(r"for name in (.*); do", script)
    assert order
    assert sorted(order[1].split()) == LOCKS
    assert all(Path(ROOT, "requirements", f"{name}.txt").is_file() for name in LOCKS)
