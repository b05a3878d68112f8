"""`headwater pipeline run load`: the command with the most options, because files are written by others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headwater.cli.pipeline import LOCAL, Format, Log, Master, access_of, place_of, run_flow
from headwater.cli.settings import settings_of

if TYPE_CHECKING:
    from headwater.cli.pipeline import Run

CSV = "How CSV files are written"

Files = Annotated[list[str], typer.Argument(help="Files, or folders of files.", metavar="FILE...", show_default=False)]
Queue = Annotated[str, typer.Option(help="The queue they go to.", show_default=False)]
FileFormat = Annotated[Format | None, typer.Option("--format", help="What they are.", show_default="their names tell")]
Delimiter = Annotated[str, typer.Option(metavar="CHARACTER", help=r"Between texts; \t is a tab.", rich_help_panel=CSV)]
Quote = Annotated[str, typer.Option(metavar="CHARACTER", help="Around texts; '' for none.", rich_help_panel=CSV)]
Header = Annotated[
    bool, typer.Option("--header/--no-header", help="The first line has the names.", rich_help_panel=CSV)
]
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--null",
        metavar="TEXT",
        help="A text that means null, such as NA; say it once for each.",
        show_default="none",
        rich_help_panel=CSV,
    ),
]
DateFormat = Annotated[
    str, typer.Option(metavar="PATTERN", help="How days are written: dd.MM.yyyy.", rich_help_panel=CSV)
]
TimeFormat = Annotated[
    str, typer.Option(metavar="PATTERN", help="How times are written: yyyy-MM-dd HH:mm.", rich_help_panel=CSV)
]
Encoding = Annotated[
    str, typer.Option(metavar="NAME", help="utf-8, or one byte a character: latin-1, cp1252.", rich_help_panel=CSV)
]
Schema = Annotated[str, typer.Option(metavar="COLUMNS", help="What rows must have: 'id BIGINT NOT NULL, ...'.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fields that the schema lacks may not pass.")]
Partition = Annotated[str, typer.Option(help="The partition they go to.")]
PartitionField = Annotated[str, typer.Option(metavar="FIELD", help="The field that names the partition.")]
IdField = Annotated[str, typer.Option(metavar="FIELD", help="The field that is the transaction id.")]
Type = Annotated[str, typer.Option("--type", help="A type for every message.")]
Again = Annotated[str, typer.Option(metavar="LABEL", help="Load files once more that were loaded before.")]
Quarantine = Annotated[Path, typer.Option(metavar="FOLDER", help="Where bad rows go.")]
QuarantineMax = Annotated[int, typer.Option(min=0, help="More bad rows than this refuse the file.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; show what would be pushed and set aside.")]
Sample = Annotated[int, typer.Option(min=0, metavar="ROWS", help="How many of each a dry run shows.")]


def load(
    ctx: typer.Context,
    files: Files,
    queue: Queue,
    format_: FileFormat = None,
    delimiter: Delimiter = ",",
    quote: Quote = '"',
    header: Header = True,
    nulls: Nulls = None,
    date_format: DateFormat = "",
    time_format: TimeFormat = "",
    encoding: Encoding = "utf-8",
    schema: Schema = "",
    strict: Strict = False,
    partition: Partition = "Default",
    partition_field: PartitionField = "",
    id_field: IdField = "",
    type_: Type = "",
    again: Again = "",
    quarantine: Quarantine = Path("quarantine"),
    quarantine_max: QuarantineMax = 10_000,
    dry_run: DryRun = False,
    sample: Sample = 5,
    master: Master = LOCAL,
    log: Log = None,
) -> None:
    """Load files into a queue, row by row; rows that may not pass are set aside with a reason.

    A file that was loaded before adds nothing. Exit code 6 says that rows were set aside.

    Examples:
      headwater pipeline run load orders.ndjson --queue orders
      headwater pipeline run load orders.csv --queue orders --schema 'id BIGINT NOT NULL, amount DOUBLE'
      headwater pipeline run load flights.csv --queue flights --null NA --dry-run
    """
    settings = settings_of(ctx)

    def job() -> "tuple[Run, Any]":
        from headwater.pipeline.files import CsvStyle
        from headwater.pipeline.flows import load as flow

        style = CsvStyle(delimiter=delimiter, quote=quote, header=header, nulls=tuple(nulls or ()))
        style = msgspec.structs.replace(style, date_format=date_format, time_format=time_format, encoding=encoding)
        plain = flow.LoadFiles(store=place_of(settings), database=settings.database, queue=queue, files=tuple(files))
        plain = msgspec.structs.replace(plain, access=access_of(settings))
        read = msgspec.structs.replace(plain, format=format_ or "", csv=style, schema=schema, strict=strict)
        placed = msgspec.structs.replace(
            read, partition=partition, partition_field=partition_field, id_field=id_field, type=type_, label=again
        )
        kept = msgspec.structs.replace(placed, quarantine=str(quarantine), quarantine_max=quarantine_max)
        return flow.run, msgspec.structs.replace(kept, dry_run=dry_run, sample=sample)

    run_flow(settings, f"loading into {queue}", master, log, job, files=files, creates=True)
