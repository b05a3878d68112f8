"""`headwater pipeline run shadow-record` and `shadow-replay`: a new matcher is tried with what really happened."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.exits import Misuse
from headwater.cli.pipeline import LOCAL, Decrypt, Log, Master, access_of, place_of, run_flow
from headwater.cli.settings import settings_of

if TYPE_CHECKING:
    from headwater.cli.pipeline import Run

KeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The key of the hashes, 16 bytes at least.", show_default="none"),
]


def record(
    ctx: typer.Context,
    collections: Annotated[
        list[str],
        typer.Option(
            "--collection", help="A collection, or a pattern with *; say it once for each.", show_default=False
        ),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The recording's folder.", show_default=False)],
    share: Annotated[float, typer.Option(help="How many of the documents: 0.01 is one in a hundred.")] = 1.0,
    hashed: Annotated[
        list[str] | None,
        typer.Option(
            "--hash", metavar="FIELD", help="A field to be hashed; say it once for each.", show_default="none"
        ),
    ] = None,
    removed: Annotated[
        list[str] | None,
        typer.Option(
            "--remove", metavar="FIELD", help="A field to be left out; say it once for each.", show_default="none"
        ),
    ] = None,
    key_file: KeyFile = None,
    decrypt: Decrypt = False,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Write what is new in the changes of documents to files, to try a matcher with: sampled and sanitised.

    A sample has all changes of a document or none, of the same documents in every run. Fields are named with dots
    (customer.email), also those of objects in lists.

    Examples:
      headwater pipeline run shadow-record --collection orders --to recording --share 0.1 --remove note
      headwater pipeline run shadow-record --collection 'rooms/*/messages' --to recording --hash author --key-file key
    """
    settings = settings_of(ctx)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.flows import shadow_record as flow
        from headwater.pipeline.sanitising import Sanitising

        rules = Sanitising(
            share=share, hashed=tuple(hashed or ()), removed=tuple(removed or ()), key=read_key(key_file)
        )
        # Told before Spark starts.
        flow.check_rules(rules)
        return flow.run, flow.ShadowRecord(
            store=place_of(settings),
            access=access_of(settings),
            database=settings.database,
            folder=str(to),
            collections=tuple(collections),
            rules=rules,
            decrypt=decrypt,
        )

    run_flow(settings, "recording", master, log, job)


def replay(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Option("--from", metavar="FOLDER", help="The recording's folder.", show_default=False)
    ],
    filters: Annotated[
        Path,
        typer.Option(metavar="FILE", help='Filters, a line each: {"collection": …, "filter": …}.', show_default=False),
    ],
    matcher: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="What makes the matcher.", show_default="that of this version")
    ] = "",
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the answers, for --against.", show_default="no")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Compare with answers kept before.", show_default="every filter by itself"),
    ] = None,
    divergence_max: Annotated[
        float, typer.Option(min=0, max=1, help="The share of changes that may be answered otherwise.")
    ] = 0.0,
    slowdown_max: Annotated[
        float,
        typer.Option(min=0, metavar="TIMES", help="How much longer the median may take.", show_default="no bound"),
    ] = 0.0,
    key_file: KeyFile = None,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Try a matcher with recorded changes: whom each concerns, by it and by another, and how long that took.

    Exit code 5 says that it is not to be rolled out: more answers differ than may, or they take too long.

    Examples:
      headwater pipeline run shadow-replay --from recording --filters filters.ndjson
      headwater pipeline run shadow-replay --from recording --filters filters.ndjson --matcher my_module:MyMatcher
      headwater pipeline run shadow-replay --from recording --filters filters.ndjson --against answers
    """
    settings = settings_of(ctx)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.flows import shadow_replay as flow

        return flow.run, flow.ShadowReplay(
            folder=str(source),
            filters=str(filters),
            key=read_key(key_file),
            matcher=matcher,
            against=str(against or ""),
            keep=str(keep or ""),
            divergence_max=divergence_max,
            slowdown_max=slowdown_max,
        )

    run_flow(settings, "replaying", master, log, job, files=[str(source)], needs_store=False)


def read_key(path: Path | None) -> bytes:
    """The key in a file; none without one."""
    if path is None:
        return b""
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise Misuse(f"--key-file {path} cannot be read: {error.strerror}") from error
