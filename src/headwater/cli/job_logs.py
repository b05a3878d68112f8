"""`queuectl logs`: what a job printed, once or as it comes.

Of a long output the store keeps the beginning and the end, and says how much lies between. Whoever follows gets what is
new each time, however far the end has moved on; what was gone before it could be shown is told.
"""

import re
import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headwater.cli.exits import ExitCode
from headwater.cli.job_views import JobId
from headwater.cli.output import note, plural, print_json
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of
from headwater.cli.watching import changes
from headwater.model.terminal import clean_lines
from headwater.outage import through_outages

if TYPE_CHECKING:
    from headwater.stores.job_questions import JobAttempt

_gap = re.compile(r"\n… ([\d,]+) bytes left out …\n")


class Kept(NamedTuple):
    """An output as it is kept: how many bytes it has begun with, how many are left out, and the rest."""

    head: bytes
    left_out: int
    tail: bytes

    @property
    def total(self) -> int:
        """How much was printed in all."""
        return len(self.head) + self.left_out + len(self.tail)


def kept_of(output: str) -> Kept:
    """The parts of an output. A program that prints such a line itself is shown it; nothing is lost by that."""
    found = _gap.search(output)
    if found is None:
        return Kept(output.encode("utf-8", "surrogateescape"), 0, b"")
    head, tail = output[: found.start()], output[found.end() :]
    return Kept(head.encode(), int(found[1].replace(",", "")), tail.encode())


def news_of(shown: int, kept: Kept) -> tuple[str, int]:
    """What to print of an output of which `shown` bytes were, and how many were then."""
    if shown < len(kept.head):
        text = kept.head[shown:].decode("utf-8", "replace")
        gap, tail = kept.left_out, kept.tail
    else:
        begin = shown - len(kept.head) - kept.left_out
        text, gap, tail = "", max(-begin, 0), kept.tail[max(begin, 0) :]
    if gap:
        text += f"\n… {gap:,} bytes left out …\n"
    return text + tail.decode("utf-8", "replace"), max(kept.total, shown)


def logs(
    ctx: typer.Context,
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="The attempt; 0 is the last.")] = 0,
    raw: Annotated[bool, typer.Option("--raw", help="As it is, with everything that steers a terminal.")] = False,
) -> None:
    """Print what a job printed. What would steer the terminal is shown escaped, unless it is asked for as it is.

    Exit code 4 when it has had no such attempt.

    Examples:
      queuectl logs job1
      queuectl logs job1 -f
      queuectl logs job1 --raw > job1.log
    """
    run_async(_logs(settings_of(ctx), job_id, follow, attempt, raw))


async def _logs(settings: Settings, job_id: str, follow: bool, number: int, raw: bool) -> None:
    from headwater.model.job import FINISHED

    shown = token = 0
    async with reached(settings) as hw:
        async for _ in changes(hw):
            job = await through_outages(lambda: hw.jobs.show(job_id))
            attempts = await through_outages(lambda: hw.jobs.attempts(job_id))
            found = [one for one in attempts if number in (0, one.attempt)]
            over = not follow or job.state in FINISHED
            if settings.json:
                _print_attempts(found if over else [])
            elif found:
                shown = shown if found[-1].token == token else 0
                token = found[-1].token
                text, shown = news_of(shown, kept_of(found[-1].output))
                sys.stdout.write(text if raw else clean_lines(text))
                sys.stdout.flush()
            if over and number > job.attempts:
                note(f"{job_id} has had {plural(job.attempts, 'attempt')}: there is no attempt {number}")
                raise typer.Exit(ExitCode.NOTHING)
            if over:
                return


def _print_attempts(attempts: "list[JobAttempt]") -> None:
    from headwater.services.job_documents import attempt_document

    for attempt in attempts:
        print_json(attempt_document(attempt))
