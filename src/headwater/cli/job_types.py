"""A word to whoever names a function that nobody has registered: a name that is written wrongly waits for ever."""

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.cli.output import plural
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.log.job_operations import NewJob
    from headwater.services.jobs import Jobs

SHOWN_MAX = 5


async def find_unregistered(board: "Jobs", jobs: "Iterable[NewJob]") -> dict[str, str]:
    """The functions of these jobs that no app or worker has registered in the store, each with the one that may be
    meant, or "". Where nobody has registered any, the workers are yet to come: then there is nothing to say."""
    from headwater.model.job import runs_command

    named = sorted({job.type for job in jobs if not runs_command(job.type)})
    if not named:
        return {}
    try:
        known = await board.types()
    except HeadwaterError:
        # A token may add jobs and see nothing else. The jobs are in; there is only nothing to compare them with.
        return {}
    return {name: _closest(name, known) for name in named if name not in known} if known else {}


def _closest(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, 1)), "")


def warnings_of(unregistered: dict[str, str]) -> Iterator[str]:
    """What to say of them: the jobs are in, and a worker that knows their functions may come."""
    for name, meant in list(unregistered.items())[:SHOWN_MAX]:
        hint = f"; did you mean {meant}?" if meant else ""
        yield f"warning: no app or worker has registered {name} here: such jobs wait until one does{hint}"
    if len(unregistered) > SHOWN_MAX:
        yield f"warning: nor {plural(len(unregistered) - SHOWN_MAX, 'more type')} of these jobs"
