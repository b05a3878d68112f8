"""`headwater version`."""

import platform

import typer

from headwater.cli import version_line
from headwater.cli.output import print_json
from headwater.cli.settings import settings_of


def version(ctx: typer.Context) -> None:
    """Say which version this is.

    Examples:
      headwater version
      headwater version --json
    """
    if settings_of(ctx).json:
        print_json(versions())
    else:
        print(version_line())


def versions() -> dict[str, object]:
    """The versions of everything that counts when two machines behave differently."""
    import apsw

    from headwater import __version__

    return {
        "version": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "platform": platform.platform(),
    }
