"""Settings of jobs and workers, kept in the store.

Examples:
  queuectl config set max-retries 5
  queuectl config get backoff-base
  queuectl config list
"""

from typing import Annotated

import typer

from headwater.cli.exits import Misuse
from headwater.cli.output import print_json, print_line, print_table
from headwater.cli.session import reached, run_async
from headwater.cli.settings import settings_of

Name = Annotated[str, typer.Argument(help="The setting.", metavar="NAME", show_default=False)]
OfQueue = Annotated[str, typer.Option("--queue", help="For this queue alone.", show_default=False)]


def set_config(
    ctx: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(help="Its value.", metavar="VALUE", show_default=False)],
    queue: OfQueue = "",
) -> None:
    """Set one, for jobs that are added and workers that are started from now on.

    Examples:
      queuectl config set max-retries 5
      queuectl config set backoff-base 3 --queue mail
    """
    settings = settings_of(ctx)
    number = _checked(name, value, for_queue=bool(queue))

    async def change() -> None:
        async with reached(settings, create=True) as hw:
            await hw.jobs.configure(name, number, queue=queue)

    run_async(change())
    if settings.json:
        print_json({"name": name, "value": number, "queue": queue or None})
    else:
        print_line((name, "cyan"), (f" is {number:g}", ""), (f" for queue {queue}" if queue else "", ""))


def unset_config(ctx: typer.Context, name: Name, queue: OfQueue = "") -> None:
    """Go back to the default.

    Examples:
      queuectl config unset max-retries
    """
    settings = settings_of(ctx)

    async def change() -> float:
        async with reached(settings, create=True) as hw:
            await hw.jobs.configure(name, None, queue=queue)
            return (await hw.jobs.config(queue))[name]

    number = run_async(change())
    if settings.json:
        print_json({"name": name, "value": number, "queue": queue or None})
    else:
        print_line((name, "cyan"), (f" is {number:g} again", ""))


def get_config(ctx: typer.Context, name: Name, queue: OfQueue = "") -> None:
    """Print one.

    Examples:
      queuectl config get max-retries
    """
    from headwater.model.job_settings import JOB_SETTINGS

    settings = settings_of(ctx)
    if name not in JOB_SETTINGS:
        _checked(name, None)
    values = run_async(_read(ctx, queue))
    if settings.json:
        print_json({"name": name, "value": values[name], "queue": queue or None})
    else:
        print_line((f"{values[name]:g}", ""))


def list_config(ctx: typer.Context, queue: OfQueue = "") -> None:
    """List all, with what they do.

    Examples:
      queuectl config list
      queuectl config list --queue mail --json
    """
    from headwater.model.job_settings import JOB_SETTINGS

    settings = settings_of(ctx)
    values = run_async(_read(ctx, queue))
    if settings.json:
        print_json(values)
        return
    rows = [(name, f"{values[name]:g}", f"{known.default:g}", known.purpose) for name, known in JOB_SETTINGS.items()]
    print_table(("NAME", "VALUE", "DEFAULT", ""), rows)


def _checked(name: str, value: str | None, *, for_queue: bool = False) -> int | float:
    """A setting that there is and a value that it takes; anything else is wrong usage: nothing is tried."""
    from headwater.errors import InvalidOption
    from headwater.model.job_settings import check_job_setting

    try:
        return check_job_setting(name, value, for_queue=for_queue)
    except InvalidOption as error:
        raise Misuse(str(error)) from error


async def _read(ctx: typer.Context, queue: str) -> dict[str, int | float]:
    async with reached(settings_of(ctx), create=True) as hw:
        return await hw.jobs.config(queue)
