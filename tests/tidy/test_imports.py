"""Imports point down only: a module may import its own layer and the layers that its line below names."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tidy.tree import ROOT, Source, parse_sources, plant, report

PACKAGE = "headwater"


class Layer(NamedTuple):
    """A part of the package, and the parts below it that it may import."""

    modules: tuple[str, ...]
    below: tuple[str, ...]


VALUES = ("foundation", "model", "filters", "operations")
SERVED = (*VALUES, "stores.contract", "log", "services")
# Bottom to top. The contracts stand apart from their implementations, so that whoever needs a store to be handed in
# cannot learn which one it is. A module belongs to the longest name that fits it.
LAYERS = {
    "foundation": Layer(("errors", "clock", "config", "outage", "forks"), ()),
    "model": Layer(("model",), ("foundation",)),
    "filters": Layer(("filters",), ("foundation", "model")),
    "operations": Layer(
        (
            "log.operations",
            "log.job_operations",
            "log.flow_operations",
            "log.group_operations",
            "log.store_operations",
            "log.stream_operations",
            "log.document_operations",
            "log.room_operations",
        ),
        ("foundation", "model", "filters"),
    ),
    "stores.contract": Layer(
        (
            "stores.contract",
            "stores.questions",
            "stores.job_questions",
            "stores.document_questions",
            "stores.room_questions",
            "stores.job_starts",
            "stores.log_reader",
        ),
        (*VALUES, "wakeups.contract"),
    ),
    "wakeups.contract": Layer(("wakeups.contract",), VALUES),
    # The rules of every engine with tables learn of none: statements come with the connection.
    "stores.tables": Layer(("stores.tables", "stores.statements", "stores.codec"), (*VALUES, "stores.contract")),
    "wakeups": Layer(("wakeups",), (*VALUES, "wakeups.contract")),
    # A store brings its own way of being woken.
    "stores": Layer(("stores",), (*VALUES, "stores.contract", "stores.tables", "wakeups.contract", "wakeups")),
    "log": Layer(("log",), (*VALUES, "stores.contract", "wakeups.contract")),
    "services": Layer(("services",), (*VALUES, "stores.contract", "log")),
    "housekeeping": Layer(("housekeeping",), SERVED),
    "doors": Layer(("doors",), SERVED),
    "worker": Layer(("worker",), SERVED),
    # Brings the drivers of the databases that it follows, and named statements for them.
    "capture": Layer(("capture",), (*SERVED, "stores.tables")),
    "client": Layer(("client",), SERVED),
    # By its address a log is a file, or one that a server reads for us.
    "stores.open": Layer(("stores.open",), (*VALUES, "stores.contract", "stores", "client")),
    # Executors are processes of their own, which open the store by its address; which kind it is they do not learn.
    "pipeline": Layer(("pipeline",), (*SERVED, "stores.open", "client")),
}
# Join everything, so they may import everything.
JOINERS = ("app", "bucket", "cli", "sync", "outbox", "jobs", "__main__")
TOP = "top"
DRIVERS = {"apsw", "bson", "obstore", "psycopg", "pymongo", "sqlite3"}
# The outbox writes through the user's own connection, whatever its driver; commands tell of versions and files.
DRIVER_PLACES = ("stores.sqlite", "stores.postgres", "stores.bucket", "stores.outbox", "outbox", "capture", "cli")


class Import(NamedTuple):
    """One import of a module of the package by another."""

    importer: str
    imported: str
    place: str


def module_name(path: Path) -> str:
    """`src/headwater/log/tail.py` is `log.tail`; the package itself is the empty name."""
    parts = path.with_suffix("").parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    """The layer a module belongs to; None when nobody has given it a place yet."""
    if not module or module.split(".")[0] in JOINERS:
        return TOP
    fitting = [
        (len(prefix), name)
        for name, layer in LAYERS.items()
        for prefix in layer.modules
        if module == prefix or module.startswith(prefix + ".")
    ]
    return max(fitting)[1] if fitting else None


def absolute_base(node: ast.ImportFrom, source: Source) -> str:
    """The package that `from … import` starts from, with the dots of a relative import worked out."""
    if node.level == 0:
        return node.module or ""
    package = [PACKAGE, *source.path.parent.parts[2:]]
    kept = package[: len(package) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def named_modules(node: ast.AST, source: Source, modules: set[str]) -> Iterator[str]:
    """Full names of the modules that one import statement loads, `if TYPE_CHECKING` or not."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = absolute_base(node, source)
        for alias in node.names:
            # `from headwater import errors` is an import of headwater.errors, not of everything headwater joins.
            submodule = f"{base}.{alias.name}"
            yield submodule if submodule in modules else base


def find_imports(sources: list[Source]) -> Iterator[Import]:
    modules = {f"{PACKAGE}.{module_name(source.path)}".rstrip(".") for source in sources}
    for source in sources:
        for node in ast.walk(source.tree):
            for name in named_modules(node, source, modules):
                if name == PACKAGE or name.startswith(PACKAGE + "."):
                    place = source.at(getattr(node, "lineno", 0))
                    yield Import(module_name(source.path), name[len(PACKAGE) + 1 :], place)


def judge(found: Import) -> str | None:
    """What is wrong with an import, or None."""
    importer, imported = layer_of(found.importer), layer_of(found.imported)
    if importer is None or imported is None or importer in (TOP, imported):
        return None
    allowed = LAYERS[importer].below
    if imported in allowed:
        return None
    name = f"{PACKAGE}.{found.imported}".rstrip(".")
    return (
        f"{found.place}: {importer} may not import {name} ({imported}); it may import {', '.join(allowed) or 'nothing'}"
    )


def find_upward_imports(root: Path) -> list[str]:
    imports = find_imports(parse_sources(root, f"src/{PACKAGE}"))
    return [wrong for found in imports if (wrong := judge(found))]


def find_drivers(root: Path) -> list[str]:
    """Imports of a database's driver outside the places that are about that database."""
    return [
        f"{source.at(node.lineno)}: only {', '.join(DRIVER_PLACES)} may know a driver"
        for source in parse_sources(root, f"src/{PACKAGE}")
        if not module_name(source.path).startswith(DRIVER_PLACES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and DRIVERS & set(named_modules(node, source, set()))
    ]


def find_homeless_modules(root: Path) -> list[str]:
    modules = (module_name(source.path) for source in parse_sources(root, f"src/{PACKAGE}"))
    return [f"{PACKAGE}.{module} has no layer: give it one in {__name__}" for module in modules if not layer_of(module)]


def find_doors_past_services(root: Path) -> list[str]:
    """Places where a door reaches for the store of a service: what it wants to know, it asks the service."""
    return [
        f"{source.at(node.lineno)}: a door asks a service, not its store"
        for source in parse_sources(root, f"src/{PACKAGE}/doors")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr == "store"
    ]


def test_doors_go_through_services() -> None:
    findings = find_doors_past_services(ROOT)
    assert not findings, report(findings)


def test_a_planted_door_past_a_service_is_caught(tmp_path: Path) -> None:
    asked = "async def look(site):\n    return await site.queues.store.ask(1)\n"
    plant(tmp_path, {"src/headwater/doors/shortcut.py": asked, "src/headwater/doors/sound.py": "queue.ask(1)\n"})
    assert [finding.split()[0] for finding in find_doors_past_services(tmp_path)] == [
        "src/headwater/doors/shortcut.py:2:"
    ]


def test_imports_point_down_only() -> None:
    findings = find_upward_imports(ROOT)
    assert not findings, report(findings)


def test_only_a_store_knows_its_driver() -> None:
    findings = find_drivers(ROOT)
    assert not findings, report(findings)


@pytest.mark.parametrize("statement", ["import apsw", "from sqlite3 import connect", "from psycopg import pq"])
def test_a_driver_in_the_shared_rules_is_caught(tmp_path: Path, statement: str) -> None:
    files = {"stores/tables/pops.py": statement, "stores/sqlite/store.py": statement, "services/queue.py": "import os"}
    plant(tmp_path, {f"src/headwater/{path}": text for path, text in files.items()})
    [finding] = find_drivers(tmp_path)
    assert finding.startswith("src/headwater/stores/tables/pops.py:1:")


def test_every_module_has_a_layer() -> None:
    findings = find_homeless_modules(ROOT)
    assert not findings, report(findings)


def test_every_layer_named_below_another_exists() -> None:
    assert {name for layer in LAYERS.values() for name in layer.below} <= set(LAYERS)


@pytest.mark.parametrize(
    ("importer", "statement", "named"),
    [
        ("model/lease.py", "from headwater.services.queues import Queues", "services"),
        ("model/lease.py", "from ..log import committer", "log"),
        ("model/__init__.py", "from .. import app", "top"),
        ("model/lease.py", "import headwater", "top"),
        ("stores/tables/pops.py", "from headwater.wakeups import contract", "wakeups.contract"),
        ("wakeups/inotify.py", "import headwater.stores.contract", "stores.contract"),
        ("stores/contract.py", "from headwater.stores.sqlite import store", "stores"),
        ("stores/tables/pops.py", "from headwater.stores.sqlite.connection import SqliteConnection", "stores"),
        ("log/committer.py", "from headwater.stores.sqlite.store import SqliteStore", "stores"),
        ("log/operations.py", "from headwater.log import committer", "log"),
        ("services/queues.py", "def late():\n    from headwater.stores import open", "stores.open"),
        ("services/queues.py", "if TYPE_CHECKING:\n    from headwater.doors import wire", "doors"),
        ("doors/queues.py", "from headwater.worker import supervisor", "worker"),
    ],
)
def test_a_planted_upward_import_is_caught(tmp_path: Path, importer: str, statement: str, named: str) -> None:
    modules = ("app", "log/committer", "stores/open", "stores/contract", "stores/sqlite/store", "wakeups/contract")
    plant(tmp_path, {f"src/headwater/{module}.py": "" for module in modules})
    plant(tmp_path, {f"src/headwater/{importer}": statement})
    findings = find_upward_imports(tmp_path)
    assert len(findings) == 1
    assert findings[0].startswith(f"src/headwater/{importer}:")
    assert f"({named})" in findings[0]


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("config.py", "from headwater import errors"),
        ("log/committer.py", "from headwater.stores.contract import Store"),
        ("log/committer.py", "from .operations import Push"),
        ("stores/sqlite/store.py", "from headwater.log.operations import Push"),
        ("stores/sqlite/store.py", "from ..contract import Store"),
        ("services/queues.py", "from headwater.log.committer import Committer"),
        ("doors/queues.py", "import asyncio, headwater.services.queues"),
        ("cli/serve.py", "from headwater.app import serve"),
        ("app.py", "from headwater.stores.sqlite.store import SqliteStore"),
        ("__init__.py", "from headwater.app import open"),
    ],
)
def test_a_downward_import_is_left_alone(tmp_path: Path, importer: str, statement: str) -> None:
    plant(tmp_path, {"src/headwater/errors.py": "", f"src/headwater/{importer}": statement})
    assert find_upward_imports(tmp_path) == []


def test_a_planted_module_without_a_layer_is_caught(tmp_path: Path) -> None:
    plant(tmp_path, {"src/headwater/telemetry.py": "", "src/headwater/model/ring.py": ""})
    assert [finding.split()[0] for finding in find_homeless_modules(tmp_path)] == ["headwater.telemetry"]
