"""Jobs that depend on jobs must not wait for each other in a circle."""

from collections.abc import Mapping, Sequence

from headwater.errors import InvalidOption


def check_no_cycle(needs: Mapping[str, Sequence[str]]) -> None:
    """Raises when a job would wait for itself, however long the way round. Jobs without needs may be left out.

    >>> check_no_cycle({"b": ["a"], "c": ["a", "b"]})
    """
    done: set[str] = set()
    for start in needs:
        _walk(start, needs, done)


def _walk(start: str, needs: Mapping[str, Sequence[str]], done: set[str]) -> None:
    """Go depth first without recursion: a chain of jobs may be longer than Python's stack is deep."""
    path: dict[str, None] = {}
    steps: list[tuple[str, int]] = [(start, 0)]
    while steps:
        name, place = steps.pop()
        if place == 0:
            if name in done:
                continue
            if name in path:
                circle = [*list(path)[list(path).index(name) :], name]
                raise InvalidOption(f"these jobs wait for each other: {' → '.join(circle)}")
            path[name] = None
        children = needs.get(name, ())
        if place < len(children):
            steps.append((name, place + 1))
            steps.append((children[place], 0))
        else:
            path.pop(name, None)
            done.add(name)
