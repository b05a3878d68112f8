"""Which functions a runner may call: those that its operator named when the worker was started, and no others.

Everything is found before the first job is looked at. What a job says is its type, a key in the dictionary that is made
here: no text from the store is ever imported, split or looked up as an attribute.
"""

import importlib
import inspect
from types import ModuleType
from typing import Any

import msgspec

from headwater.errors import InvalidOption
from headwater.services.job_functions import JobFunction, JobRegistry

KnownFunctions = dict[str, JobFunction[..., Any]]


class FunctionSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where functions come from: an app as `module:name`, modules with decorated functions, and undecorated functions,
    each named as `module:function`. What they enqueue themselves goes to `database` of `store`."""

    app: str = ""
    modules: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    store: str = ""
    database: str = ""

    def __bool__(self) -> bool:
        return bool(self.app or self.modules or self.functions)


def load_functions(sources: FunctionSources) -> KnownFunctions:
    """The functions that may be called, by the exact names that jobs know them by."""
    known: KnownFunctions = {}
    apps: list[JobRegistry] = []
    if sources.app:
        apps.append(load_app(sources.app))
        _add(known, apps[0].functions)
    for name in sources.modules:
        _add(known, _defined_in(_module(name)))
    for name in sources.functions:
        function = _allowed(name)
        _add(known, {function.name: function})
    if sources.store:
        apps += [one.app for one in known.values()]
        for app in {id(app): app for app in apps}.values():
            app.work_for(sources.store, sources.database)
    return known


def load_app(path: str) -> JobRegistry:
    """The app at `module:name`; without a name it is `app`."""
    module, _, name = path.partition(":")
    loaded = _module(module)
    found = getattr(loaded, name or "app", None)
    if isinstance(found, JobRegistry):
        return found
    there = sorted(f"{module}:{name}" for name, value in vars(loaded).items() if isinstance(value, JobRegistry))
    what = "there is no such name" if found is None else f"it is a {type(found).__name__}"
    raise InvalidOption(f"{path} must be a JobApp, as module:name; {what}. There is {', '.join(there) or 'none'} there")


def _module(name: str) -> ModuleType:
    """A module that an operator has named; what goes wrong inside it is its author's matter."""
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidOption(f"{name!r} must be the name of a module, like tasks or shop.tasks: no path and no .py")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidOption(
                f"there is no module {error.name!r}: start the worker in the folder that has it, or set PYTHONPATH"
            ) from None
        raise


def _defined_in(module: ModuleType) -> KnownFunctions:
    """The decorated functions of a module. What it has only imported stays with the module that defines it."""
    values = list(vars(module).values())
    apps = [value for value in values if isinstance(value, JobRegistry)]
    apps += [value.app for value in values if isinstance(value, JobFunction)]
    found = {name: one for app in apps for name, one in app.functions.items()}
    return {name: one for name, one in found.items() if one.function.__module__ == module.__name__}


def _allowed(path: str) -> JobFunction[..., Any]:
    """A function that no decorator has made a job: an operator has named it."""
    module, _, name = path.partition(":")
    found = vars(_module(module)).get(name)
    if isinstance(found, JobFunction):
        return found
    if not inspect.isroutine(found):
        raise InvalidOption(f"{path!r} must name a function at the top of a module, as module:function")
    return JobRegistry().allow(path, found)


def _add(known: KnownFunctions, more: KnownFunctions) -> None:
    for name, function in more.items():
        if known.setdefault(name, function).function is not function.function:
            raise InvalidOption(f"two functions are named {name!r}: a job could mean either; rename one")
