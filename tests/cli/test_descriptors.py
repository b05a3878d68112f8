"""A server has the descriptors that its connections need, or takes fewer connections."""

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headwater.cli.descriptors import OTHERS, Room, room_for
from tests.cli.program import Program
from tests.cli.test_serve import connect, serving

ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "room"),
    [
        (1_024, 500_000, Room(16_000 + OTHERS, 16_000)),
        (1_024, ENDLESS, Room(16_000 + OTHERS, 16_000)),
        (20_000, 20_000, Room(20_000, 16_000)),
        (ENDLESS, ENDLESS, Room(ENDLESS, 16_000)),
        (1_024, 4_096, Room(4_096, 4_096 - OTHERS)),
        (100, 300, Room(300, 150)),
    ],
)
def test_a_server_asks_for_what_its_connections_need_and_keeps_some_for_the_store(
    soft: int, hard: int, room: Room
) -> None:
    assert room_for(16_000, soft, hard) == room


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """What is started meanwhile has so few until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_are_answered_than_a_process_has_descriptors_by_default(program: Program) -> None:
    """S0-62."""
    count = 150
    with ExitStack() as stack:
        with few_descriptors(count):
            _, url = stack.enter_context(serving(program))
        clients = [stack.enter_context(connect(url)) for _ in range(count)]
        for client in clients:
            client.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answers = [client.recv(1_000)[:12] for client in clients]
    assert answers == [b"HTTP/1.1 200"] * count
