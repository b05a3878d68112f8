"""Settings of jobs and workers, kept in the store.

Examples:
  queuectl config set max-retries 5
  queuectl config get backoff-base
  queuectl config list
"""

from typing import Annotated

import typer

from headwater.cli.commands import Result, command, line
from headwater.cli.exits import Misuse
from headwater.cli.output import print_table
from headwater.cli.session import reached
from headwater.cli.settings import Settings

Name = Annotated[str, typer.Argument(help="The setting.", metavar="NAME", show_default=False)]
OfQueue = Annotated[str, typer.Option("--queue", help="For this queue alone.", show_default=False)]


@command
async def set_config(
    settings: Settings,
    name: Name,
    value: Annotated[str, typer.Argument(help="Its value.", metavar="VALUE", show_default=False)],
    queue: OfQueue = "",
) -> Result:
    """Set one, for jobs that are added and workers that are started from now on.

    Examples:
      queuectl config set max-retries 5
      queuectl config set backoff-base 3 --queue mail
    """
    number = _checked(name, value, for_queue=bool(queue))
    async with reached(settings, create=True) as hw:
        await hw.jobs.configure(name, number, queue=queue or None)
    return _line(name, number, queue, (name, "cyan"), (f" is {number:g}{f' for queue {queue}' if queue else ''}", ""))


@command
async def unset_config(settings: Settings, name: Name, queue: OfQueue = "") -> Result:
    """Go back to the default.

    Examples:
      queuectl config unset max-retries
    """
    async with reached(settings, create=True) as hw:
        await hw.jobs.configure(name, None, queue=queue or None)
        number = (await hw.jobs.config(queue or None))[name]
    return _line(name, number, queue, (name, "cyan"), (f" is {number:g} again", ""))


@command
async def get_config(settings: Settings, name: Name, queue: OfQueue = "") -> Result:
    """Print one.

    Examples:
      queuectl config get max-retries
    """
    from headwater.model.job_settings import JOB_SETTINGS

    if name not in JOB_SETTINGS:
        _checked(name, None)
    async with reached(settings, or_empty=True) as hw:
        number = (await hw.jobs.config(queue or None))[name]
    return _line(name, number, queue, (f"{number:g}", ""))


def _line(name: str, number: float, queue: str, *parts: tuple[str, str]) -> Result:
    return line({"name": name, "value": number, "queue": queue or None}, *parts)


@command
async def list_config(settings: Settings, queue: OfQueue = "") -> Result:
    """List all, with what they do.

    Examples:
      queuectl config list
      queuectl config list --queue mail --json
    """
    from headwater.model.job_settings import JOB_SETTINGS

    async with reached(settings, or_empty=True) as hw:
        values = await hw.jobs.config(queue or None)
    rows = [(name, f"{values[name]:g}", f"{known.default:g}", known.purpose) for name, known in JOB_SETTINGS.items()]
    return Result([values], lambda: print_table(("NAME", "VALUE", "DEFAULT", ""), rows))


def _checked(name: str, value: str | None, *, for_queue: bool = False) -> int | float:
    """A setting that there is and a value that it takes; anything else is wrong usage: nothing is tried."""
    from headwater.errors import InvalidOption
    from headwater.model.job_settings import check_job_setting

    try:
        return check_job_setting(name, value, for_queue=for_queue)
    except InvalidOption as error:
        raise Misuse(str(error)) from error
