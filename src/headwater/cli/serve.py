"""`headwater serve`: an open store, its chores, and the edge in front of it, until a signal ends it."""

import asyncio
import errno
import gc
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from headwater.cli.access import access_of, check_bind
from headwater.cli.certificates import make_tls
from headwater.cli.descriptors import make_room
from headwater.cli.exits import ExitCode
from headwater.cli.output import iso_time, print_json
from headwater.cli.session import make_headwater, run_fast, start, store_location
from headwater.cli.settings import Settings, settings_of
from headwater.errors import ConfigError, HeadwaterError
from headwater.model.terminal import clean_entry, clean_json

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.doors.access.settings import AccessSettings
    from headwater.doors.board import Board
    from headwater.doors.edge.server import Edge
    from headwater.doors.routes import Router
    from headwater.doors.site import Site
    from headwater.doors.wire import Handler, Request, Response
    from headwater.model.command_template import CommandTemplate

log = logging.getLogger(__name__)

PORT_DEFAULT = 6632
BODY_BYTES_MAX = 16 * 1_048_576
BODIES_BYTES_MAX = 128 * 1_048_576
CONNECTIONS_MAX = 16_000
COLLECT_AFTER = 20_000
REPORT_SECONDS = 1.0
# What is closed within this, after a second signal, is closed in good order.
HASTE_SECONDS = 0.5


JobCommands = Annotated[
    str, typer.Option(metavar="FILE", help="Commands that may be enqueued over HTTP, by name (JSON); else none.")
]


BodiesBytesMax = Annotated[
    int, typer.Option(min=1_024, help="Bodies of all requests under way, in each process; one caller gets half.")
]
TrustedProxies = Annotated[
    str, typer.Option(metavar="ADDRESSES", help="Proxies whose X-Forwarded-For is believed: 10.0.0.0/8, ::1.")
]
Advertise = Annotated[
    str,
    typer.Option(metavar="URL", help="Where other servers on the same bucket reach this one; else where it listens."),
]
ConnectionsMax = Annotated[int, typer.Option(min=1, help="Connections at once, in each process.")]


class PortTaken(HeadwaterError):
    """The port cannot be had; choose another, or end the program that has it."""

    code: ClassVar[str] = "port_taken"


def serve(
    ctx: typer.Context,
    host: Annotated[
        str, typer.Option(help="The address to listen at; others than this machine's own need --auth.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")] = PORT_DEFAULT,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the port and the store.")] = 1,
    certificate: Annotated[
        str, typer.Option(metavar="FILE", help="A certificate with its chain (PEM): HTTPS instead of HTTP.")
    ] = "",
    certificate_key: Annotated[str, typer.Option(metavar="FILE", help="The key of the certificate (PEM).")] = "",
    trusted_proxies: TrustedProxies = "",
    access_log: Annotated[bool, typer.Option("--access-log", help="A line in the log for each request.")] = False,
    body_bytes_max: Annotated[int, typer.Option(min=1_024, help="The largest body of a request.")] = BODY_BYTES_MAX,
    bodies_bytes_max: BodiesBytesMax = BODIES_BYTES_MAX,
    connections_max: ConnectionsMax = CONNECTIONS_MAX,
    job_commands: JobCommands = "",
    advertise: Advertise = "",
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
      headwater serve --job-commands commands.json
      headwater serve --processes 2 --certificate server.pem --certificate-key server.key
      curl http://127.0.0.1:6632/health
    """
    settings, access = settings_of(ctx), access_of(ctx)
    check_bind(host, access)
    set_logging(as_json=settings.json)
    _accept_old_settings()
    serving = Serving(
        settings=settings,
        access=access,
        host=host,
        port=port,
        tls=make_tls(certificate, certificate_key),
        proxies=trusted_proxies,
        access_log=access_log,
        body_bytes_max=body_bytes_max,
        bodies_bytes_max=bodies_bytes_max,
        connections_max=make_room(connections_max),
        commands=_read_commands(job_commands) if job_commands else {},
        advertise=check_advertised(advertise),
    )
    if processes > 1:
        code = _serve_together(serving, processes)
    else:
        ended_by = run_fast(_serve(serving, 0, lambda port: _say_ready(serving, port)))
        code = ExitCode.INTERRUPTED if ended_by is signal.SIGINT else 0
    if code:
        raise typer.Exit(code)


def _accept_old_settings() -> None:
    """Variables of an older setup may stay; somebody who still turns at them should hear what they do (S4-17).

    A value that could never have been meant is refused: whoever set it believes that it counts.
    """
    for name, (is_right, expected) in _OLD_SETTINGS.items():
        value = os.environ.get(name)
        if value is None:
            continue
        if not is_right(value.strip()):
            raise ConfigError(f"{name} must be {expected}; got {value!r:.80}; it steers nothing here and may be unset")
        log.info("%s is accepted and steers nothing: waiting pops need no workers and no interval", name)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


_OLD_SETTINGS: "Mapping[str, tuple[Callable[[str], bool], str]]" = {
    "POLL_WORKER_COUNT": (_is_count, "a number above 0"),
    "POLL_INTERVAL_MS": (_is_count, "a number of milliseconds above 0"),
    "USE_PRIORITY_DISPATCH": (lambda text: text.lower() in ("true", "false", "1", "0", "yes", "no"), "true or false"),
}


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, where and how."""

    settings: Settings
    access: "AccessSettings"
    host: str
    port: int
    tls: ssl.SSLContext | None
    proxies: str
    access_log: bool
    body_bytes_max: int
    bodies_bytes_max: int
    connections_max: int
    commands: "Mapping[str, CommandTemplate]"
    advertise: str = ""
    board: "Board | None" = None
    shared: bool = False
    create: bool = True


def _read_commands(path: str) -> "Mapping[str, CommandTemplate]":
    """The commands that may come over HTTP."""
    from headwater.model.command_template import read_templates

    try:
        with open(path, "rb") as file:
            return read_templates(file.read())
    except OSError as error:
        raise ConfigError(f"--job-commands {path}: {error.strerror or error}") from error


def check_advertised(url: str) -> str:
    """An address as others need it; ConfigError when it is none."""
    from headwater.client.address import parse_address

    if url:
        parse_address(url)
    return url.rstrip("/")


def _serve_together(serving: Serving, processes: int) -> int:
    """Several processes on one port and one store. The first one does the chores."""
    from headwater.cli.processes import Family, hold_port
    from headwater.doors.board import Board
    from headwater.stores.contract import HeldByOne

    if isinstance(make_headwater(serving.settings).store, HeldByOne):
        raise ConfigError("--processes must be 1 for a store in a bucket: one process holds it, and others hand on")
    try:
        holder = hold_port(serving.host, serving.port)
    except OSError as error:
        raise _port_taken(error, serving.host, serving.port) from error
    with holder:
        shared = replace(serving, port=holder.getsockname()[1], shared=True, board=Board(processes))

        def run_one(index: int, ready: Callable[[], None]) -> int:
            return _run_member(shared, index, ready)

        def all_are_ready() -> None:
            nonlocal shared
            # Whoever takes the place of one that died opens the store of the others, or none.
            shared = replace(shared, create=False)
            _say_ready(shared, shared.port)

        return Family(processes, run_one).run(all_are_ready)


def _run_member(serving: Serving, index: int, ready: Callable[[], None]) -> int:
    try:
        run_fast(_serve(serving, index, lambda port: ready()))
    except HeadwaterError as error:
        log.error("process %d: %s", index, error)
        return ExitCode.FAILED
    return 0


async def _serve(serving: Serving, index: int, ready: Callable[[int], None]) -> signal.Signals:
    from headwater.cli.turns import serve_in_turns
    from headwater.stores.contract import HeldByOne

    hw = make_headwater(serving.settings, create=serving.create, housekeeping=None if index == 0 else False)
    if isinstance(hw.store, HeldByOne):
        return await serve_in_turns(serving, hw, ready)
    await start(hw, serving.settings)
    try:
        signals = listen_for_signals()
        edge = make_edge(serving)
        door = await make_door(serving, hw, edge, index)
        edge.handler = edge.admit = passed_first(serving, guarded_routes(serving, hw, door))
        await start_edge(edge, serving)
        ready(edge.port)
        telling = asyncio.ensure_future(_tell_what_was_done(door.site))
        ended_by = await signals.get()
        telling.cancel()
        # Before what they follow ends: they go on elsewhere from where they are.
        edge.sessions.close()
        drain(hw)
        await stop_edge(edge, signals)
        return ended_by
    finally:
        await hw.close()


def drain(hw: "Headwater") -> None:
    """The server stops: whoever waits is told."""
    hw.queues_service.intentions.drain()
    hw.committer.hurry()


def make_edge(serving: Serving) -> "Edge":
    """The port to be listened at. Nobody answers there yet."""
    from headwater.doors.edge.limits import Limits
    from headwater.doors.edge.server import Edge

    limits = Limits(
        body_bytes_max=serving.body_bytes_max,
        bodies_bytes_max=serving.bodies_bytes_max,
        connections_max=serving.connections_max,
    )
    return Edge(_nobody, limits)


async def _nobody(request: "Request") -> "Response":
    raise AssertionError("the edge listens before anybody answers")


async def make_door(serving: Serving, hw: "Headwater", edge: "Edge", index: int = 0) -> "Router":
    """All routes over a store that was opened."""
    from headwater.app import make_router

    await hw.keeper.prepare()
    door = make_router(hw)
    await door.site.subscriptions.tokens.prepare()
    door.site.process = str(index)
    door.site.board = serving.board or door.site.board
    door.site.availability = edge.availability
    door.site.commands = serving.commands
    door.site.connections = edge.count
    return door


async def _tell_what_was_done(site: "Site") -> None:
    """Keep the other processes informed, so that any of them can answer for all."""
    from headwater.doors.metrics import put_up

    while site.board.count > 1:
        put_up(site)
        await asyncio.sleep(REPORT_SECONDS)


def _collect_rarely() -> None:
    """Thousands of connections that wait are no garbage, and requests make no cycles: looking for them that often costs
    a server with 500 connections a sixth of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def guarded_routes(serving: Serving, hw: "Headwater", door: "Handler") -> "Handler":
    """The routes behind their guards."""
    from headwater.doors.access.guard import guarded

    return guarded(door, serving.access, hw.store, hw.tail, hw.clock)


def passed_first(serving: Serving, handler: "Handler") -> "Handler":
    """The same, behind what finds out whose request it is, and tells of it."""
    from headwater.doors.access_log import logged
    from headwater.doors.proxies import behind_proxies, parse_networks

    if serving.access_log:
        handler = logged(handler)
    networks = parse_networks(serving.proxies)
    return behind_proxies(handler, networks) if networks else handler


async def start_edge(edge: "Edge", serving: Serving) -> None:
    """Listen."""
    try:
        await edge.start(serving.host, serving.port, shared=serving.shared, tls=serving.tls)
    except OSError as error:
        raise _port_taken(error, serving.host, serving.port) from error
    _collect_rarely()


def _port_taken(error: OSError, host: str, port: int) -> PortTaken:
    reason = {
        errno.EADDRINUSE: f"port {port} at {host} is taken by another program; choose another with --port, or 0",
        errno.EACCES: f"port {port} needs rights that this user does not have; choose one from 1024 on",
    }.get(error.errno or 0, f"cannot listen at {host}, port {port}: {error}")
    return PortTaken(reason)


async def stop_edge(edge: "Edge", signals: "asyncio.Queue[signal.Signals]") -> None:
    """Finish what is under way; somebody who asks a second time means it."""
    stopping = asyncio.ensure_future(edge.stop())
    impatient = asyncio.ensure_future(signals.get())
    await asyncio.wait({stopping, impatient}, return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    edge.abort()
    await stopping


def listen_for_signals() -> "asyncio.Queue[signal.Signals]":
    """Those that end a server. The second one ends it, whatever is waited for then."""
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    told: list[signal.Signals] = []
    loop = asyncio.get_running_loop()

    def tell(number: signal.Signals) -> None:
        told.append(number)
        signals.put_nowait(number)
        if len(told) > 1:
            loop.call_later(HASTE_SECONDS, _end_at_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell, number)
    return signals


def _end_at_once() -> None:
    """What is committed is safe as it is: others find the store as that of a server that was killed."""
    log.error("ended at once by a second signal, before everything was closed")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.FAILED)


def url_of(serving: Serving, port: int) -> str:
    """Where it listens."""
    scheme = "http" if serving.tls is None else "https"
    return f"{scheme}://[{serving.host}]:{port}" if ":" in serving.host else f"{scheme}://{serving.host}:{port}"


def _say_ready(serving: Serving, port: int) -> None:
    """One line, flushed: whoever started this waits for it."""
    from headwater import __version__

    settings, url = serving.settings, url_of(serving, port)
    if settings.json:
        store = {"store": settings.store, "location": store_location(settings)}
        print_json({"event": "ready", "version": __version__, **store, "url": url})
    else:
        print(f"headwater {__version__} serves {settings.store} on {url}", flush=True)


class JsonLines(logging.Formatter):
    """Log records as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        import msgspec

        line: dict[str, Any] = {
            "time": iso_time(int(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return clean_json(msgspec.json.encode(line).decode())


class TextLines(logging.Formatter):
    """Log records as text. Much of it is foreign, errors of jobs among it: it neither steers a terminal nor looks like
    an entry of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        return clean_entry(super().format(record))


def set_logging(*, as_json: bool) -> None:
    """The log goes to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
