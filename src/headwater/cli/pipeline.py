"""`headwater pipeline run`: flows on Spark for what needs no code, and for functions of one's own.

Spark and everything that needs it is imported when a flow runs: `--help` and a wrong option must not wait for it.
"""

import json
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import typer

from headwater.cli.exits import ExitCode, MatchersDiverge, Misuse
from headwater.cli.interrupting import interruptibly, noting_the_end, run_interruptibly
from headwater.cli.output import print_facts, print_json, progress, show_bytes
from headwater.cli.session import RETRY_SECONDS
from headwater.cli.settings import Group, Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from headwater.client.access import Access
    from headwater.pipeline.summary import Summary

    Run = Callable[[SparkSession, Any, Callable[[float], None]], Summary]

Result = TypeVar("Result")

OWN = "MODULE:FUNCTION"
FLOWS = {
    "archive": "queues into Parquet files by queue and day, with a manifest",
    "restore": "an archive back into its queues",
    "rollup": "throughput, latency, lag, retries and dead letters into tables, and a chart",
    "load": "Parquet, CSV or NDJSON files into a queue",
    "export": "a queue into Parquet, CSV or NDJSON files",
    "shadow-record": "changes of documents, sampled and sanitised, into Parquet files",
    "shadow-replay": "such files through a matcher, whose answers are compared",
    OWN: "a flow of your own",
}
ENGINE = "Options of every flow"

Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[N] or a cluster.", rich_help_panel=ENGINE),
]
Log = Annotated[
    Path | None,
    typer.Option("--spark-log", metavar="FILE", help="Where Spark's own log goes.", rich_help_panel=ENGINE),
]
QueueNames = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="QUEUE", help="A queue; say it once for each.", show_default="all"),
]
Decrypt = Annotated[bool, typer.Option("--decrypt", help="Write what is encrypted in the store as plain text.")]
Format = Literal["parquet", "csv", "ndjson"]
LOCAL = "local[*]"
LITTLE_BYTES = 64 * 1_048_576


def list_flows(ctx: typer.Context) -> None:
    """Show the flows there are.

    Examples:
      headwater pipeline list
    """
    if settings_of(ctx).json:
        print_json([{"flow": name, "purpose": purpose} for name, purpose in FLOWS.items()])
        return
    print_facts(FLOWS.items())


def prepare(ctx: typer.Context) -> None:
    """Make Spark start in half the time on this machine, from now on.

    Spark's classes are kept ready for Java in one file of about 190 MB in your cache folder ($XDG_CACHE_HOME). Run it
    once, and again after an upgrade of Spark or Java; flows and sessions find it by themselves. In a container image,
    run it when the image is built.

    Examples:
      headwater pipeline prepare
    """
    settings = settings_of(ctx)
    from headwater.errors import PipelineUnavailable

    try:
        from headwater.pipeline.class_archive import make_archive
        from headwater.pipeline.session import class_archive
    except ImportError as error:
        raise PipelineUnavailable("the pipeline needs the extra: pip install 'headwater[spark]'") from error
    place = class_archive()
    with progress("preparing Spark", 1.0, shown=not settings.json):
        size = make_archive(place)
    facts = {"file": str(place), "bytes": size}
    if settings.json:
        print_json(facts)
    else:
        print_facts((name, _shown(name, value)) for name, value in facts.items())


def environment(ctx: typer.Context) -> None:
    """Print what Spark's own programs need in their environment, as a shell reads it.

    spark-submit, pyspark and start-connect-server.sh find Spark, Java and this Python by it.

    Examples:
      eval "$(headwater pipeline environment)" && spark-submit job.py
    """
    settings = settings_of(ctx)
    from headwater.errors import PipelineUnavailable

    try:
        from headwater.pipeline.session import spark_environment
    except ImportError as error:
        raise PipelineUnavailable("the pipeline needs the extra: pip install 'headwater[spark]'") from error
    found = spark_environment()
    if settings.json:
        print_json(found)
        return
    for name, value in found.items():
        print(f"export {name}={shlex.quote(value)}")


def archive(
    ctx: typer.Context,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The archive's folder.", show_default=False)],
    queues: QueueNames = None,
    compact: Annotated[bool, typer.Option("--compact/--no-compact", help="Make small files of a day one.")] = True,
    decrypt: Decrypt = False,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Write what is new in queues to an archive: Parquet files by queue and day, with a manifest.

    Run it as often as you like: it goes on from where the manifest stands, also after it was killed. A queue with
    archive_required drops records only after this.

    Examples:
      headwater pipeline run archive --to archive
      headwater pipeline run archive --to archive --queue orders --master local[2]
    """
    settings = settings_of(ctx)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.flows import archive as flow
        from headwater.pipeline.served import need_file

        need_file(place_of(settings), "archive", "the store is told what it may forget")
        chosen = tuple(queues or ())
        return flow.run, flow.Archive(
            store=settings.store,
            database=settings.database,
            folder=str(to),
            queues=chosen,
            compact=compact,
            decrypt=decrypt,
        )

    run_flow(settings, "archiving", master, log, job)


def restore(
    ctx: typer.Context,
    source: Annotated[Path, typer.Option("--from", metavar="FOLDER", help="The archive's folder.", show_default=False)],
    queue: Annotated[str, typer.Option(help="The queue in the archive.", show_default="all of them")] = "",
    target: Annotated[
        str, typer.Option("--as", metavar="QUEUE", help="Restore under this name.", show_default="its own")
    ] = "",
    since: Annotated[str, typer.Option(metavar="DAY", help="The first day, such as 2026-11-01.")] = "",
    until: Annotated[str, typer.Option(metavar="DAY", help="The last day.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show what would go where.")] = False,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Read an archive back into its queues: order, ids and times are kept, running it twice adds nothing.

    Every file is checked before anything is written; one that is damaged or missing is named.

    Examples:
      headwater pipeline run restore --from archive --dry-run
      headwater pipeline run restore --from archive --queue orders --as orders.2026
      headwater pipeline run restore --from archive --since 2026-11-01 --until 2026-11-15
    """
    settings = settings_of(ctx)
    for name, day in (("--since", since), ("--until", until)):
        check_day(name, day)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.flows import restore as flow

        return flow.run, flow.Restore(
            store=place_of(settings),
            access=access_of(settings),
            database=settings.database,
            folder=str(source),
            queue=queue,
            target=target,
            since=since,
            until=until,
            dry_run=dry_run,
        )

    run_flow(settings, "restoring", master, log, job, files=[str(source)], creates=True)


def rollup(
    ctx: typer.Context,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw what is kept: chart.svg or chart.html.")
    ] = None,
    resolution: Annotated[Literal["minute", "hour", "day"], typer.Option(help="What the chart shows.")] = "minute",
    queues: QueueNames = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="Show from here on: 2026-11-15, 2026-11-15T08:00.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="Show up to here; a day is to its end.")] = "",
    by_queue: Annotated[bool, typer.Option("--by-queue", help="A chart for each queue, below each other.")] = False,
    late: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How late a record may be.")] = 3_600,
    every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Do it again and again until Ctrl-C.", show_default="once")
    ] = 0,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Count what happened by minute, hour and day: pushed, completed, latency, lag, retries, dead letters.

    The figures are kept in the store and add up over runs. Completions and latency are taken between two runs, so run
    it often: latencies are too long by up to the time between two runs.

    Examples:
      headwater pipeline run rollup --chart chart.html
      headwater pipeline run rollup --every 60
      headwater pipeline run rollup --chart week.html --resolution hour --queue orders --since 2026-11-09
    """
    settings = settings_of(ctx)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.flows import rollup as flow
        from headwater.pipeline.served import need_file

        need_file(place_of(settings), "rollup", "its figures are kept in tables of the store")
        return flow.run, flow.RollUp(
            store=settings.store,
            database=settings.database,
            late_seconds=late,
            chart=str(chart or ""),
            resolution=resolution,
            queues=tuple(queues or ()),
            since=since,
            until=until,
            by_queue=by_queue,
        )

    run_flow(settings, "rolling up", master, log, job, every=every)


def export(
    ctx: typer.Context,
    queue: Annotated[str, typer.Option(help="The queue.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The folder of the files.", show_default=False)],
    format_: Annotated[Format, typer.Option("--format", help="What to write.")] = "ndjson",
    schema: Annotated[str, typer.Option(metavar="COLUMNS", help="Columns from the payload: 'id BIGINT, ...'.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Fields that the schema lacks may not pass.")] = False,
    decrypt: Decrypt = False,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Write what is new in a queue to files; with a schema, payloads that do not fit are set aside with a reason.

    Exit code 6 says that messages were set aside, in the folder's _quarantine.

    Examples:
      headwater pipeline run export --queue orders --to out
      headwater pipeline run export --queue orders --to csv --format csv --schema 'id BIGINT, amount DOUBLE'
    """
    settings = settings_of(ctx)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.flows import export as flow

        return flow.run, flow.Export(
            store=place_of(settings),
            access=access_of(settings),
            database=settings.database,
            queue=queue,
            folder=str(to),
            format=format_,
            schema=schema,
            strict=strict,
            decrypt=decrypt,
        )

    run_flow(settings, f"exporting {queue}", master, log, job)


def own(
    ctx: typer.Context,
    queue: Annotated[str, typer.Option(help="The queue to read.", show_default="the flow's own")] = "",
    to: Annotated[
        str, typer.Option("--to", metavar="QUEUE", help="The queue to write.", show_default="the flow's own")
    ] = "",
    schema: Annotated[
        str, typer.Option(metavar="COLUMNS", help="The payload's fields.", show_default="the flow's own")
    ] = "",
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where it remembers how far it is.", show_default="beside the store"),
    ] = None,
    batch: Annotated[int, typer.Option(min=0, help="The most messages in a batch.", show_default="all there are")] = 0,
    every: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Go on until Ctrl-C, a batch this often.", show_default="once"),
    ] = 0,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Run a flow of your own: a function from a DataFrame to a DataFrame, between two queues.

    Each message takes effect once, also when it is killed and started again.

    Examples:
      headwater pipeline run my_module:my_flow
      headwater pipeline run my_module:my_flow --queue orders --to revenue --every 10
    """
    settings = settings_of(ctx)
    name = ctx.info_name or ""

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline import own as flow

        wanted = flow.RunFlow(
            store=place_of(settings),
            access=access_of(settings),
            database=settings.database,
            name=name,
            queue=queue,
            target=to,
            schema=schema,
            checkpoint=str(checkpoint or ""),
            every_seconds=every,
            messages_per_batch=batch,
        )
        # Told before Spark starts.
        flow.checkpoint_of(wanted)
        return flow.run, wanted

    run_flow(settings, name, master, log, job)


class Flows(Group):
    """The flows by name; a name with a colon is a flow of the user's own."""

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        found = super().get_command(ctx, cmd_name)
        if found is None and ":" in cmd_name:
            found = super().get_command(ctx, OWN)
        return found

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        name, command, rest = super().resolve_command(ctx, args)
        return (args[0] if ":" in args[0] else name), command, rest


# ── running ──


def run_flow(
    settings: Settings,
    title: str,
    master: str,
    log: Path | None,
    job: "Callable[[], tuple[Run, Any]]",
    every: float = 0,
    files: "Sequence[str]" = (),
    creates: bool = False,
    needs_store: bool = True,
) -> None:
    """Start Spark, run a flow once or again and again, show what it came to.

    `files` are what it reads beside the store; one that `creates` may find no store yet.
    """
    from headwater.errors import PipelineUnavailable

    try:
        from headwater.pipeline.failures import told_in_one_line
        from headwater.pipeline.served import open_log
        from headwater.pipeline.session import session_log, start_session
        from headwater.stores.open import is_server
    except ImportError as error:
        raise PipelineUnavailable("the pipeline needs the extra: pip install 'headwater[spark]'") from error
    place = log or session_log()
    with told_in_one_line(place), noting_the_end():
        run, arguments = job()
        where, access = place_of(settings), access_of(settings)
        if needs_store and (not creates or is_server(where)):
            # Before the seconds that Spark takes: a mistyped address is told at once.
            with open_log(where, msgspec.structs.replace(access, retry_seconds=RETRY_SECONDS)) as there:
                there.greet()
        with progress(title, 1.0, shown=not settings.json) as tell:
            brief = is_little(settings, files, creates) if needs_store else _is_little(files)
            spark = interruptibly(lambda: start_session(master, log=place, brief=brief))
            summary = run_interruptibly(spark, lambda: run(spark, arguments, tell))
        quarantined = show_summary(settings, summary)
        while every:
            time.sleep(every)
            again = run_interruptibly(spark, lambda: run(spark, arguments, lambda share: None))
            quarantined += show_summary(settings, again)
    if summary.refused:
        raise MatchersDiverge(summary.refused)
    if quarantined:
        raise typer.Exit(ExitCode.QUARANTINED)


def place_of(settings: Settings) -> str:
    """Where the log is that a flow works on: a store, or a server."""
    return settings.server or settings.store


def access_of(settings: Settings) -> "Access":
    """How a server is reached: the token is in the file that was named, or where the environment says."""
    from headwater.client.access import Access

    return Access(token_file=os.path.abspath(settings.token_file) if settings.token_file else "")


def is_little(settings: Settings, files: "Sequence[str]", creates: bool) -> bool:
    """Whether what a flow reads is so little that starting Spark takes longer than reading it.

    How much a server or a database has is not known here; who `creates` reads only files.
    """
    from headwater.stores.open import scheme_of

    if scheme_of(place_of(settings)):
        return creates and _is_little(files)
    return _is_little([settings.store, *files])


def _is_little(places: "Sequence[str]") -> bool:
    return sum(size_of(Path(place)) for place in places) <= LITTLE_BYTES


def size_of(place: Path) -> int:
    """The bytes of a file, or of all files of a folder; none of what is not there."""
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())


def show_summary(settings: Settings, summary: "Summary") -> int:
    """Print what a flow came to; how many rows were set aside."""
    if settings.json:
        names = {name.replace(" ", "_"): value for name, value in summary.facts.items()}
        print_json({"flow": summary.flow, **names})
    else:
        print_facts((name, _shown(name, value)) for name, value in summary.facts.items())
    return summary.quarantined


def _shown(name: str, value: object) -> object:
    if isinstance(value, list):
        return [json.dumps(item, ensure_ascii=False) for item in value]
    return show_bytes(value) if name == "bytes" and isinstance(value, int) else value


def check_day(name: str, text: str) -> None:
    """Raises unless a text is a day or nothing."""
    from datetime import date

    try:
        if text:
            date.fromisoformat(text)
    except ValueError as error:
        raise Misuse(f"{name} must be a day such as 2026-11-15; got {text!r}") from error
