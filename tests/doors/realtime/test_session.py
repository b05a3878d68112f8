"""The realtime session itself: who it is, one message after the other, how often, how it ends."""

import asyncio
import json

import msgspec
import pytest

from headwater.doors.realtime.envelope import MessageId, answer
from headwater.doors.realtime.limits import load_limits
from headwater.doors.realtime.session import INBOX_MAX, MessageHandler, RealtimeSession
from headwater.doors.realtime.table import HANDLERS
from headwater.doors.sessions import CloseCode
from headwater.doors.wire import Request
from headwater.errors import ConfigError, Overloaded, QueueFull
from headwater.model.principal import Principal
from tests.doors.realtime.guests import Desk, make_hall, say, settle, visit
from tests.loop_clock import standing_still


class Word(msgspec.Struct, frozen=True):
    word: str


def repeat(session: RealtimeSession, id: MessageId, payload: Word) -> None:
    session.send(answer("repeated", payload, id))


class Slow:
    """A handler that takes until it is let go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def handle(self, session: RealtimeSession, id: MessageId, payload: Word) -> None:
        await self.go_on.wait()
        session.send(answer("slowly", payload, id))


async def fill(session: RealtimeSession, id: MessageId, payload: Word) -> None:
    raise QueueFull("no room for this")


async def break_down(session: RealtimeSession, id: MessageId, payload: Word) -> None:
    raise RuntimeError("a secret of the server")


SPOKEN = {**HANDLERS, "repeat": MessageHandler(Word, repeat), "fill": MessageHandler(Word, fill)}


async def test_an_answer_has_the_id_of_what_it_answers() -> None:
    """S3-23."""
    session, peer = visit(make_hall(SPOKEN))
    await say(session, "repeat", {"word": "tree"}, id="a-7")
    assert peer.heard == [{"id": "a-7", "type": "repeated", "payload": {"word": "tree"}}]
    session.closed(1000)


async def test_half_a_surrogate_pair_is_called_that() -> None:
    session, peer = visit(make_hall(SPOKEN))
    session.received(r'{"id": "1", "type": "repeat", "payload": {"word": "\ud800"}}')
    assert "$.payload.word has half a surrogate pair" in peer.heard[0]["payload"]["message"]
    session.closed(1000)


async def test_nothing_is_served_before_a_good_token() -> None:
    """S3-24."""
    session, peer = visit(make_hall(SPOKEN), Desk("ann"))
    await say(session, "repeat", {"word": "early"}, id="1")
    await say(session, "auth", {"token": "hw_nobody"}, id="2")
    await say(session, "auth", {"token": "hw_ann", "database": "main"}, id="3")
    await say(session, "repeat", {"word": "now"}, id="4")
    refused = [message for message in peer.heard if message["type"] == "error"]
    assert [(one["id"], one["payload"]["code"]) for one in refused] == [("1", "unauthorized"), ("2", "unauthorized")]
    assert all("unauthorized" in one["payload"]["message"] for one in refused)
    assert [one["type"] for one in peer.heard[2:]] == ["auth_ack", "repeated"]
    assert peer.heard[2]["payload"] == {"status": "ok", "database": "main", "member": session.member}
    assert peer.is_open()
    session.closed(1000)


async def test_a_token_is_for_its_own_database() -> None:
    session, peer = visit(make_hall(SPOKEN), Desk("ann"))
    await say(session, "auth", {"token": "hw_ann", "database": "other"})
    assert peer.heard[-1]["payload"]["code"] == "not_allowed"
    await say(session, "repeat", {"word": "x"})
    assert peer.heard[-1]["payload"]["code"] == "unauthorized"
    await say(session, "auth", {"token": "hw_ann", "database": "default"})
    assert peer.heard[-1]["type"] == "auth_ack"
    session.closed(1000)


async def test_where_nobody_is_asked_auth_is_not_needed_and_does_no_harm() -> None:
    session, peer = visit(make_hall(SPOKEN))
    await say(session, "repeat", {"word": "x"})
    await say(session, "auth", {"token": "", "database": "default"})
    assert [message["type"] for message in peer.heard] == ["repeated", "auth_ack"]
    session.closed(1000)


async def test_one_who_does_not_say_who_they_are_is_let_go_after_ten_seconds() -> None:
    with standing_still() as clock:
        hall = make_hall(SPOKEN)
        silent, peer = visit(hall, Desk("ann"))
        known, other = visit(hall, Desk("ann"))
        await say(known, "auth", {"token": "hw_ann"})
        for _ in range(9):
            await clock.advance(1.0)
        assert peer.is_open()
        await clock.advance(1.0)
        await clock.advance(1.0)
        assert peer.closed_with == (CloseCode.POLICY_VIOLATED, "unauthenticated")
        assert other.is_open()
        silent.closed(1008)
        known.closed(1000)


async def test_a_heartbeat_comes_every_25_seconds_to_each() -> None:
    """S3-6, S3-34."""
    with standing_still() as clock:
        hall = make_hall(SPOKEN)
        guests = [visit(hall) for _ in range(10)]
        for seconds, expected in ((24, 0), (2, 1), (23, 1), (2, 2)):
            for _ in range(seconds):
                await clock.advance(1.0)
            counts = [len([one for one in peer.heard if one["type"] == "heartbeat"]) for _, peer in guests]
            assert counts == [expected] * 10
        for session, _ in guests:
            session.closed(1000)


async def test_a_credential_that_is_revoked_ends_its_sessions_within_a_second() -> None:
    with standing_still() as clock:
        hall, desk = make_hall(SPOKEN), Desk("ann", "bob")
        anns = [visit(hall, desk) for _ in range(2)]
        bob, bobs_peer = visit(hall, desk)
        for session, _ in anns:
            await say(session, "auth", {"token": "hw_ann"})
        await say(bob, "auth", {"token": "hw_bob"})
        del desk.tokens["hw_ann"]
        await clock.advance(1.0)
        assert [peer.closed_with for _, peer in anns] == [(CloseCode.POLICY_VIOLATED, "unauthenticated")] * 2
        assert bobs_peer.is_open()
        for session, _ in (*anns, (bob, bobs_peer)):
            session.closed(1000)


async def test_those_who_leave_while_credentials_are_looked_at_keep_nobody_from_it() -> None:
    with standing_still() as clock:
        desk = Desk("ann", "bob", "cid")
        hall = make_hall(SPOKEN)
        sessions, peers = {}, {}
        for name in ("ann", "bob", "cid"):
            sessions[name], peers[name] = visit(hall, desk)
            await say(sessions[name], "auth", {"token": f"hw_{name}"})
        identify = desk.identify

        async def as_bob_leaves(credential: str) -> Principal:
            if credential == "hw_ann":
                sessions["bob"].closed(1000)
            return await identify(credential)

        for session in sessions.values():
            session.identify = as_bob_leaves
        del desk.tokens["hw_cid"]
        await clock.advance(1.0)
        await settle()
        assert peers["cid"].closed_with == (CloseCode.POLICY_VIOLATED, "unauthenticated")
        assert peers["ann"].is_open()
        sessions["ann"].closed(1000)
        sessions["cid"].closed(1008)


async def test_what_a_token_may_do_is_looked_at_again() -> None:
    with standing_still() as clock:
        hall, desk = make_hall(SPOKEN), Desk("ann")
        session, _ = visit(hall, desk)
        await say(session, "auth", {"token": "hw_ann"})
        desk.tokens["hw_ann"] = Principal(subject="ann", queues=("rooms/one",))
        await clock.advance(1.0)
        assert session.known.queues == ("rooms/one",)
        session.closed(1000)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_input"),
        ("[]", "invalid_input"),
        ("{", "invalid_input"),
        ('{"id":"1"}', "invalid_input"),
        ('{"type":7}', "invalid_input"),
        ('{"type":"repeat","payload":{"word":7}}', "invalid_input"),
        ('{"type":"repeat","payload":[]}', "invalid_input"),
        ('{"type":"no such thing"}', "invalid_input"),
        ('{"type":"repeat","payload":' + "[" * 100_000, "invalid_input"),
        ('{"type":"fill","payload":{"word":""}}', "queue_full"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_what_cannot_be_done_is_told_and_the_session_goes_on(text: str, code: str) -> None:
    session, peer = visit(make_hall(SPOKEN))
    session.received(text)
    await settle()
    assert [(one["type"], one["payload"]["code"]) for one in peer.heard] == [("error", code)]
    await say(session, "repeat", {"word": "still here"})
    assert peer.heard[-1]["type"] == "repeated"
    session.closed(1000)


async def test_bytes_are_not_taken() -> None:
    session, peer = visit(make_hall(SPOKEN))
    session.received(b"{}")
    assert peer.closed_with is not None
    assert peer.closed_with[0] == CloseCode.NOT_ACCEPTED
    session.closed(1003)


async def test_what_breaks_ends_the_session_and_stays_here(caplog: pytest.LogCaptureFixture) -> None:
    session, peer = visit(make_hall({**SPOKEN, "break": MessageHandler(Word, break_down)}))
    await say(session, "break", {"word": ""})
    assert peer.closed_with == (CloseCode.INTERNAL_ERROR, "this server failed")
    assert "a secret of the server" in caplog.text
    session.closed(1011)


async def test_messages_are_handled_in_their_order_and_not_read_without_bound() -> None:
    slow = Slow()
    handlers = {**SPOKEN, "slow": MessageHandler(Word, slow.handle)}
    session, peer = visit(make_hall(handlers, messages_per_second=1e6))
    await say(session, "slow", {"word": "first"})
    for number in range(INBOX_MAX):
        assert not peer.rests()
        await say(session, "repeat", {"word": str(number)})
    assert peer.rests()
    assert peer.heard == []
    slow.go_on.set()
    await settle()
    assert not peer.rests()
    assert [one["payload"]["word"] for one in peer.heard] == ["first", *map(str, range(INBOX_MAX))]
    session.closed(1000)


async def test_one_who_speaks_too_often_is_read_more_slowly_and_loses_nothing() -> None:
    with standing_still() as clock:
        session, peer = visit(make_hall(SPOKEN, messages_per_second=10))
        # All of them come with one read, which no pause takes back: two seconds' worth goes on at once.
        for number in range(50):
            session.received(json.dumps({"type": "repeat", "payload": {"word": str(number)}}))
        assert (len(peer.heard), peer.rests()) == (20, True)
        for tenths in range(1, 30):
            await clock.advance(0.1 + 1e-9)
            assert (len(peer.heard), peer.rests()) == (20 + tenths, True)
        await clock.advance(0.1 + 1e-9)
        assert (len(peer.heard), peer.rests()) == (50, False)
        assert [one["payload"]["word"] for one in peer.heard] == [str(number) for number in range(50)]
        session.closed(1000)


async def test_what_cannot_be_read_takes_of_the_allowance_too() -> None:
    with standing_still():
        session, peer = visit(make_hall(SPOKEN, messages_per_second=10))
        for _ in range(50):
            session.received("no JSON")
        assert (len(peer.heard), peer.rests()) == (20, True)
        session.closed(1000)


async def test_what_waits_for_its_time_is_not_taken_up_once_the_client_is_gone() -> None:
    with standing_still() as clock:
        session, peer = visit(make_hall(SPOKEN, messages_per_second=10))
        for _ in range(50):
            session.received(json.dumps({"type": "repeat", "payload": {"word": "x"}}))
        session.closed(1000)
        await clock.advance(10.0)
        assert len(peer.heard) == 20


async def test_no_more_is_read_while_more_waits_than_may() -> None:
    """Each that takes time lets one go on; what was read meanwhile would only grow."""
    slow = Slow()
    session, peer = visit(make_hall({"slow": MessageHandler(Word, slow.handle)}, messages_per_second=1e6))
    for _ in range(2 * INBOX_MAX):
        session.received(json.dumps({"type": "slow", "payload": {"word": "x"}}))
    slow.go_on.set()
    while len(peer.heard) < INBOX_MAX - 2:
        assert peer.rests()
        await asyncio.sleep(0)
    for _ in range(INBOX_MAX):
        await settle()
    assert (len(peer.heard), peer.rests()) == (2 * INBOX_MAX, False)
    session.closed(1000)


async def test_all_connections_of_one_token_share_an_allowance() -> None:
    with standing_still() as clock:
        hall, desk = make_hall(SPOKEN, messages_per_token_per_second=5), Desk("ann", "bob")
        anns = [visit(hall, desk) for _ in range(2)]
        bob, bobs_peer = visit(hall, desk)
        for session, _ in anns:
            await say(session, "auth", {"token": "hw_ann"})
        await say(bob, "auth", {"token": "hw_bob"})
        # What was said before who it was counted for the address.
        for number in range(40):
            await say(anns[number % 2][0], "repeat", {"word": "x"})

        def answered() -> int:
            return sum(one["type"] == "repeated" for _, peer in anns for one in peer.heard)

        assert (answered(), [peer.rests() for _, peer in anns]) == (10, [True, True])
        for _ in range(3):
            before = [len(peer.heard) for _, peer in anns]
            for _ in range(5):
                await clock.advance(0.2 + 1e-9)
            # Both are heard in turn.
            assert sorted(len(peer.heard) - was for was, (_, peer) in zip(before, anns, strict=True)) == [2, 3]
        assert answered() == 25
        await say(bob, "repeat", {"word": "x"})
        assert not bobs_peer.rests()
        for session, _ in (*anns, (bob, bobs_peer)):
            session.closed(1000)


async def test_there_are_only_so_many_connections_from_one_address_and_with_one_token() -> None:
    hall, desk = make_hall(SPOKEN, connections_per_address_max=3, connections_per_token_max=1), Desk("ann")
    request = {"client": "192.0.2.7"}
    first, _ = visit(hall, desk, **request)
    second, peer = visit(hall, desk, **request)
    third, _ = visit(hall, desk, **request)
    asked = Request(method="GET", path="/realtime/ws", client="192.0.2.7")
    with pytest.raises(Overloaded):
        hall.admit(asked)
    hall.admit(msgspec.structs.replace(asked, client="192.0.2.8"))
    third.closed(1000)
    hall.admit(asked)
    await say(first, "auth", {"token": "hw_ann"})
    await say(second, "auth", {"token": "hw_ann"})
    assert peer.closed_with == (CloseCode.TRY_AGAIN_LATER, "overloaded")
    first.closed(1000)
    second.closed(1013)
    assert hall.count() == 0


async def test_who_has_no_token_is_bounded_by_the_address_alone() -> None:
    """A server that may have many connections of one address has them, also where nobody is asked who they are."""
    hall = make_hall(SPOKEN, connections_per_address_max=3, connections_per_token_max=1)
    guests = [visit(hall, client="192.0.2.7") for _ in range(3)]
    assert [peer.closed_with for _, peer in guests] == [None] * 3
    with pytest.raises(Overloaded):
        hall.admit(Request(method="GET", path="/realtime/ws", client="192.0.2.7"))
    for session, _ in guests:
        session.closed(1000)
    assert hall.count() == 0


def fail() -> None:
    raise RuntimeError("not told")


async def test_who_is_to_be_told_hears_of_the_end_once_and_others_do_not_fail_it() -> None:
    session, _ = visit(make_hall(SPOKEN))
    told: list[str] = []
    session.at_end(lambda: told.append("one"))
    session.at_end(fail)
    session.at_end(lambda: told.append("two"))
    session.closed(1006)
    session.at_end(lambda: told.append("late"))
    assert told == ["one", "two", "late"]


def test_bounds_come_from_variables_and_a_wrong_one_is_named() -> None:
    assert load_limits({"HEADWATER_REALTIME_AUTH_SECONDS": "3"}).auth_seconds == 3.0
    for wrong in ("0", "soon", "inf"):
        with pytest.raises(ConfigError, match=r"(?i)auth_seconds"):
            load_limits({"HEADWATER_REALTIME_AUTH_SECONDS": wrong})
