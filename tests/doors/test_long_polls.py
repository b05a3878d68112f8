"""Pops that wait, in crowds: no thread, no timer and no query for each of them, and everybody is answered."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.app import open_door
from headwater.doors.wire import Handler, Request, Response
from tests.loop_clock import standing_still
from tests.waiting import expect_soon_async

# Waiting clients and the groups they are in, as a capacity table had them.
CROWD = (1_000, 400)
PATIENCE_SECONDS = 60.0
CROWD_OF_A_CAMPAIGN = (5_000, 2_000)


class Scene:
    """A store with all its routes, asked without a transport."""

    def __init__(self, hw: headwater.Headwater, door: Handler) -> None:
        self.hw = hw
        self._door = door

    @property
    def polls(self) -> Any:
        return self.hw.queues_service.intentions

    async def ask(self, method: str, path: str, query: str = "", body: Any = None) -> Response:
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return await self._door(Request(method=method, path=path, query=query, headers=headers, body=content))

    def wait(self, queue: str = "orders", milliseconds: int = 30_000, **query: Any) -> "asyncio.Task[Response]":
        """A pop that waits."""
        asked = {"wait": "true", "timeout": milliseconds, **query}
        text = "&".join(f"{name}={value}" for name, value in asked.items())
        return asyncio.ensure_future(self.ask("GET", f"/api/v1/pop/queue/{queue}", text))

    async def crowd(self, waiting: "list[asyncio.Task[Response]]") -> None:
        """Until all of them wait."""

        while self.polls.count < len(waiting):
            assert not any(task.done() for task in waiting)
            await asyncio.sleep(0)

    async def push(self, *items: dict[str, Any]) -> None:
        answer = await self.ask("POST", "/api/v1/push", body={"items": list(items)})
        assert answer.status == 201


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    settings: dict[str, Any] = {"housekeeping": False}
    async with headwater.open(str(tmp_path / "headwater.db"), **settings) as hw, open_door(hw) as door:
        made = Scene(hw, door)
        # The first request of all looks at the switches, which would make it the last of a crowd.
        await made.ask("GET", "/api/v1/pop/queue/orders")
        yield made


def item(payload: Any, queue: str = "orders", partition: str = "Default") -> dict[str, Any]:
    return {"queue": queue, "partition": partition, "payload": payload}


def messages(answers: list[Response]) -> list[Any]:
    return [m["data"] for answer in answers if answer.status == 200 for m in json.loads(answer.body)["messages"]]


async def test_six_clients_are_all_answered_by_their_own_deadline(scene: Scene) -> None:
    """S4-30: with 30 s to wait each is answered after 30 s, not a moment earlier and not a moment later."""
    waiting = []
    with standing_still() as clock:
        for number in range(6):
            waiting.append(scene.wait(f"q{number}"))
            await scene.crowd(waiting)
            await clock.advance(1)
        await clock.advance(30 - 6 - 0.001)
        for answered in range(6):
            assert sum(task.done() for task in waiting) == answered
            await clock.advance(0.001)
            assert sum(task.done() for task in waiting) == answered + 1
            await clock.advance(1 - 0.001)
    assert [task.result().status for task in waiting] == [204] * 6
    assert scene.polls.timeouts == 6


async def test_those_who_wait_cost_no_thread_and_no_commit(scene: Scene) -> None:
    await scene.push(item(0, "other"))
    waiting = [scene.wait(consumerGroup=f"g{number % 20}") for number in range(200)]
    await scene.crowd(waiting)
    threads, commits, pops = threading.active_count(), scene.hw.committer.commits, scene.polls.pops
    await asyncio.sleep(0.2)
    await scene.ask("GET", "/version")
    assert (threading.active_count(), scene.hw.committer.commits, scene.polls.pops) == (threads, commits, pops)
    scene.polls.drain()
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {204}


async def test_a_hundred_clients_on_one_queue_are_asked_for_together(scene: Scene) -> None:
    waiting = [scene.wait() for _ in range(100)]
    await scene.crowd(waiting)
    commits = scene.hw.committer.commits
    await scene.push(item(7))
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await scene.ask("GET", "/version")
    assert messages([task.result() for task in done]) == [7]
    assert len(pending) == 99
    # The push, the pop that got it, and perhaps one look that found no more.
    assert scene.hw.committer.commits - commits <= 3
    scene.polls.drain()
    await asyncio.gather(*pending)


async def test_only_those_who_got_something_are_taken_out(scene: Scene) -> None:
    waiting = [scene.wait(autoAck="true") for _ in range(10)]
    await scene.crowd(waiting)
    await scene.push(*(item(number) for number in range(4)))
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def four_served() -> bool:
        return sum(task.done() for task in waiting) == 4

    await expect_soon_async(four_served)
    assert messages([task.result() for task in waiting if task.done()]) == [0, 1, 2, 3]
    assert [task.done() for task in waiting] == [True] * 4 + [False] * 6
    await scene.push(*(item(number) for number in range(4, 10)))
    assert sorted(messages(list(await asyncio.gather(*waiting)))) == list(range(10))


async def test_everybody_in_a_crowd_of_many_groups_is_served_once(scene: Scene, pytestconfig: pytest.Config) -> None:
    clients, groups = CROWD_OF_A_CAMPAIGN if pytestconfig.getoption("campaign") else CROWD
    each = clients // groups
    waiting = [scene.wait(f"q{number % groups}", batch=1, autoAck="true") for number in range(each * groups)]
    await scene.crowd(waiting)
    assert scene.polls.keys() == groups
    for start in range(0, groups, 100):
        some = range(start, min(start + 100, groups))
        await scene.push(*(item([queue, copy], f"q{queue}") for queue in some for copy in range(each)))
    found = messages(list(await asyncio.gather(*waiting)))
    assert Counter(map(tuple, found)) == Counter((queue, copy) for queue in range(groups) for copy in range(each))


async def test_a_deadline_and_a_delivery_never_both_answer(scene: Scene) -> None:
    pushed = 0
    seen: list[Any] = []
    for turn in range(40):
        waiting = [scene.wait(milliseconds=1 + turn % 5, autoAck="true") for _ in range(5)]
        for _ in range(turn % 7):
            await asyncio.sleep(0.0005)
        await scene.push(item(pushed), item(pushed + 1))
        pushed += 2
        seen.extend(messages(list(await asyncio.gather(*waiting))))
    rest = await scene.ask("GET", "/api/v1/pop/queue/orders", "batch=1000&autoAck=true")
    seen.extend(messages([rest]))
    assert sorted(seen) == list(range(pushed))


async def test_a_poll_that_is_cancelled_gives_its_message_to_the_next(scene: Scene) -> None:
    first, second = scene.wait(), scene.wait()
    await scene.crowd([first, second])
    pushing = asyncio.ensure_future(scene.push(item(7)))
    first.cancel()
    await pushing
    answer = json.loads((await asyncio.wait_for(second, 10)).body)["messages"]
    assert [(message["data"], message["attempts"]) for message in answer] == [(7, 1)]
    assert first.cancelled()


async def test_names_that_look_alike_are_kept_apart(scene: Scene) -> None:
    by_queue = scene.wait("a:*", consumerGroup="g")
    by_namespace = asyncio.ensure_future(
        scene.ask("GET", "/api/v1/pop", "namespace=a&task=*&consumerGroup=g&wait=true&timeout=30000")
    )
    assert (await by_queue).status == 400
    assert (await by_namespace).status == 400
    one = scene.wait("a", consumerGroup="b:g")
    other = scene.wait("a:b", consumerGroup="g")
    await scene.crowd([one, other])
    assert scene.polls.keys() == 2
    await scene.push(item("for a:b", "a:b"))
    assert messages([await other]) == ["for a:b"]
    assert not one.done()
    scene.polls.drain()
    assert (await one).status == 204


async def test_a_poll_by_namespace_is_served_by_a_push_to_any_of_its_queues(scene: Scene) -> None:
    await scene.ask("POST", "/api/v1/configure", body={"queue": "mails", "namespace": "shop", "task": "send"})
    waiting = [
        asyncio.ensure_future(scene.ask("GET", "/api/v1/pop", f"{which}&wait=true&timeout=30000"))
        for which in ("namespace=shop&consumerGroup=1", "task=send&consumerGroup=2", "namespace=other&consumerGroup=3")
    ]
    await scene.crowd(waiting)
    await scene.push(item(7, "mails"))
    assert messages(list(await asyncio.gather(*waiting[:2]))) == [7, 7]
    assert not waiting[2].done()
    scene.polls.drain()
    assert (await waiting[2]).status == 204


async def test_polls_at_one_server_are_served_by_pushes_at_another(scene: Scene, tmp_path: Path) -> None:
    waiting = [scene.wait(f"q{number}", consumerGroup="g") for number in range(20)]
    await scene.crowd(waiting)
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as other:
        for number in range(20):
            await other.queue(f"q{number}").push(number)
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert messages(list(answers)) == list(range(20))


# ── while pops are held off ──


async def hold_off(scene: Scene, enabled: bool = True) -> None:
    answer = await scene.ask("POST", "/api/v1/system/maintenance/pop", body={"enabled": enabled})
    assert json.loads(answer.body)["popMaintenanceMode"] is enabled


async def test_pops_that_wait_already_get_nothing_once_pops_are_held_off(scene: Scene, tmp_path: Path) -> None:
    """On every server of the store, on both wires; whoever has the store open itself goes on."""
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as other, open_door(other) as door:
        elsewhere = Scene(other, door)
        await elsewhere.ask("GET", "/api/v1/pop/queue/orders")
        body = {"queue": "orders", "group": "g", "wait_seconds": 60}
        waiting = {
            place: [place.wait(milliseconds=60_000), asyncio.ensure_future(place.ask("POST", "/v1/pop", body=body))]
            for place in (scene, elsewhere)
        }
        for place, tasks in waiting.items():
            await place.crowd(tasks)
        library = asyncio.ensure_future(scene.hw.queue("orders").pop(group="library", wait=60))
        await scene.crowd([*waiting[scene], library])  # type: ignore[list-item]
        await hold_off(scene)
        for tasks in waiting.values():
            queen, native = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS)
            assert (queen.status, json.loads(native.body)["batches"]) == (204, [])
        # Who comes now does not wait either, there or here.
        assert (await elsewhere.ask("GET", "/api/v1/pop/queue/orders")).status == 204
        await scene.push(item("for later"))
        assert [message.payload for message in await library] == ["for later"]
        assert [lease.group for lease in await scene.hw.queue("orders").leases()] == ["library"]
        assert (scene.polls.timeouts, elsewhere.polls.timeouts) == (0, 0)
        await hold_off(scene, False)
        served = await scene.ask("GET", "/api/v1/pop/queue/orders")
        assert "for later" in served.body.decode()
