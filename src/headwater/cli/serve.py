"""`headwater serve`: an open store, its chores, and the edge in front of it, until a signal ends it."""

import asyncio
import errno
import logging
import signal
import sys
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from headwater.cli.access import access_of, check_bind
from headwater.cli.exits import ExitCode
from headwater.cli.output import iso_time, print_json
from headwater.cli.session import opened, run_fast
from headwater.cli.settings import Settings, settings_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.doors.access.settings import AccessSettings
    from headwater.doors.edge.server import Edge

PORT_DEFAULT = 6632


class PortTaken(HeadwaterError):
    """The port cannot be had; choose another, or end the program that has it."""

    code: ClassVar[str] = "port_taken"


def serve(
    ctx: typer.Context,
    host: Annotated[
        str, typer.Option(help="The address to listen at; others than this machine's own need --auth.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")] = PORT_DEFAULT,
) -> None:
    """Serve a store over HTTP and do its chores, until Ctrl-C or SIGTERM.

    The store is made when it is missing. One line says when the server is ready and where. Requests under way are
    finished before it ends; a second signal ends it at once. With --json the log is JSON too.

    Each option about access is also a variable: --jwt-issuer is HEADWATER_JWT_ISSUER. The secret of HS256 comes from
    HEADWATER_JWT_SECRET or from a file, never from an option.

    Examples:
      headwater serve
      headwater serve --store orders.db --port 7000
      headwater serve --host 0.0.0.0 --auth token
      curl http://127.0.0.1:6632/health
    """
    settings, access = settings_of(ctx), access_of(ctx)
    check_bind(host, access)
    set_logging(as_json=settings.json)
    ended_by = run_fast(_serve(settings, access, host, port))
    if ended_by is signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)


async def _serve(settings: Settings, access: "AccessSettings", host: str, port: int) -> signal.Signals:
    from headwater import __version__
    from headwater.app import open_door
    from headwater.doors.access.guard import guarded
    from headwater.doors.edge.server import Edge

    async with opened(settings, create=True, housekeeping=None) as hw, open_door(hw) as door:
        edge = Edge(guarded(door, access, hw.store, hw.tail, hw.clock))
        signals = _listen_for_signals()
        await _start(edge, host, port)
        _say_ready(settings, hw, host, edge.port, __version__)
        ended_by = await signals.get()
        hw.queues_service.intentions.drain()
        await _stop(edge, signals)
        return ended_by


async def _start(edge: "Edge", host: str, port: int) -> None:
    try:
        await edge.start(host, port)
    except OSError as error:
        reason = {
            errno.EADDRINUSE: f"port {port} at {host} is taken by another program; choose another with --port, or 0",
            errno.EACCES: f"port {port} needs rights that this user does not have; choose one from 1024 on",
        }.get(error.errno or 0, f"cannot listen at {host}, port {port}: {error}")
        raise PortTaken(reason) from error


async def _stop(edge: "Edge", signals: "asyncio.Queue[signal.Signals]") -> None:
    """Finish what is under way; somebody who asks a second time means it."""
    stopping = asyncio.ensure_future(edge.stop())
    impatient = asyncio.ensure_future(signals.get())
    await asyncio.wait({stopping, impatient}, return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    edge.abort()
    await stopping


def _listen_for_signals() -> "asyncio.Queue[signal.Signals]":
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    return signals


def _say_ready(settings: Settings, hw: "Headwater", host: str, port: int, version: str) -> None:
    """One line, flushed: whoever started this waits for it."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if settings.json:
        store = {"store": settings.store, "location": hw.store.traits.location}
        print_json({"event": "ready", "version": version, **store, "url": url})
    else:
        print(f"headwater {version} serves {settings.store} on {url}", flush=True)


class JsonLines(logging.Formatter):
    """Log records as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        import msgspec

        line = {
            "time": iso_time(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_logging(*, as_json: bool) -> None:
    """The log goes to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
