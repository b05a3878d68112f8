"""What others have written, as people see it on the command line: it steers no terminal, and makes no lines."""

import asyncio
import json
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import headwater
from headwater.model.room import Member
from tests.cli.program import Ended, Program

EVIL = {
    "an escape": "\x1b]0;owned\x07\x1b[2J",
    "an escape of one sign": "\x9b31m",
    "text turned around": "\u202egnp.exe\u2066",
    "a deletion": "safe\x7f\x7f\x7f\x7f",
    "a line": "one\n2026-01-01T00:00:00.000Z 7 message admin",
    "a line that does not look like one": "a\u2028b\u2029c\x85d",
    "a line that begins anew": "abc\rxyz",
    "a mark that nobody sees": "\ufeffa\u200e",
}


def expect_one_clean_line(ended: Ended, count: int = 1) -> None:
    """No sign that a terminal takes for more than a sign, and no more lines than there are things to tell."""
    steering = {sign for sign in ended.out if unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")} - {"\n"}
    assert not steering, ended.out
    assert ended.out.count("\n") == count, ended.out


@asynccontextmanager
async def opened(program: Program) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(program.store)) as hw:
        yield hw


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_a_room_shows_what_is_said_and_by_whom_on_one_line(program: Program, evil: str) -> None:
    between_tokens = headwater.Raw(b'{\n"a"\r\n:\t' + json.dumps(evil, ensure_ascii=False).encode() + b"\n}")

    async def say() -> None:
        async with opened(program) as hw:
            await hw.room("a").send(between_tokens, sender=evil)

    asyncio.run(say())
    expect_one_clean_line(program.expect(0, "room", "tail", "a", "--since", "beginning", "--limit", "1"))
    shown = program.expect(0, "room", "tail", "a", "--since", "beginning", "--limit", "1", "--json")
    assert (shown.document()["data"], shown.document()["from"]) == ({"a": evil}, evil)
    expect_one_clean_line(shown)


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_members_of_a_room_are_shown_on_one_line_each(program: Program, evil: str) -> None:
    profile = headwater.Raw(json.dumps({"name": evil}, ensure_ascii=False).encode())

    async def come() -> None:
        async with opened(program) as hw:
            live = await hw.rooms_service.enter("main", "a")
            await hw.rooms_service.connect(live, Member("ann", profile))

    asyncio.run(come())
    expect_one_clean_line(program.expect(0, "room", "members", "a"), 2)


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_messages_of_a_queue_are_shown_on_one_line_each(program: Program, evil: str) -> None:
    async def push() -> None:
        async with opened(program) as hw:
            await hw.queue("q").push({"a": evil}, type=evil, transaction_id=evil, headers={"name": evil})

    asyncio.run(push())
    expect_one_clean_line(program.expect(0, "tail", "q", "--from", "beginning", "--no-follow"))
    expect_one_clean_line(program.expect(0, "pop", "q"))


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_dead_letters_and_their_errors_are_shown_on_one_line_each(program: Program, evil: str) -> None:
    async def fail() -> None:
        async with opened(program) as hw:
            queue = hw.queue("q")
            await queue.configure(retry_limit=0)
            await queue.push({"a": evil}, type=evil, transaction_id=evil)
            await queue.fail(await queue.pop(), error=evil)

    asyncio.run(fail())
    expect_one_clean_line(program.expect(0, "dlq", "list", "q"), 2)
    number = program.expect(0, "dlq", "list", "q", "--json").documents()[0]["id"]
    shown = program.expect(0, "dlq", "show", "q", str(number))
    expect_one_clean_line(shown, shown.out.count("\n"))
