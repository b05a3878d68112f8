"""What the newest queen-mq client does against a server: `python newest_client.py URL DEED`, in a process of its own.

Its package has the name of the older one. Prints what it saw as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from queen import Queen


async def try_core_calls(queen: Any) -> dict[str, Any]:
    """Each core call once."""
    seen: dict[str, Any] = {}
    made = await queen.queue("orders").config({"lease_time": 60, "retry_limit": 0}).create()
    seen["configured"] = made["configured"]
    pushed = await queen.queue("orders").partition("eu").push([{"data": {"n": number}} for number in range(6)])
    seen["pushed"] = [result["status"] for result in pushed]

    messages = await queen.queue("orders").batch(2).wait(False).pop()
    seen["popped"] = [message["data"]["n"] for message in messages]
    seen["renewed"] = (await queen.renew(messages[0]))["success"]
    seen["acked"] = [result["success"] for result in (await queen.ack(messages))["results"]]

    (message,) = await queen.queue("orders").batch(1).wait(False).pop()
    committed = await queen.transaction().ack(message).queue("invoices").push([{"data": {"n": 2}}]).commit()
    seen["committed"] = committed["success"]
    invoices = await queen.queue("invoices").batch(5).wait(True).timeout_millis(2_000).pop()
    seen["invoices"] = [invoice["data"]["n"] for invoice in invoices]

    (message,) = await queen.queue("orders").batch(1).wait(False).pop()
    await queen.ack(message, False, {"error": "broken"})
    letters = await queen.queue("orders").dlq().get()
    seen["letters"] = [(letter["data"]["n"], letter["errorMessage"]) for letter in letters["messages"]]

    consumed: list[int] = []

    async def handle(message: Any) -> None:
        consumed.append(message["data"]["n"])

    await queen.queue("orders").group("mail").each().limit(6).consume(handle)
    seen["consumed"] = consumed

    await queen.queue("late").buffer({"message_count": 100, "time_millis": 60_000}).push([{"data": {"n": 9}}])
    await queen.flush_all_buffers()
    seen["buffered"] = [one["data"]["n"] for one in await queen.queue("late").batch(5).wait(False).pop()]
    seen["empty"] = await queen.queue("nothing").wait(True).timeout_millis(50).pop()
    seen["deleted"] = (await queen.queue("orders").delete())["deleted"]
    return seen


async def fail_one_of_a_batch(queen: Any) -> dict[str, Any]:
    """Twelve messages by fives, of which one fails once."""
    await queen.queue("orders").push([{"data": number} for number in range(12)])
    handled: list[int] = []
    done = asyncio.Event()

    async def handle(message: Any) -> None:
        handled.append(message["data"])
        if handled == [*range(8)]:
            raise RuntimeError("not yet")
        if message["data"] == 11:
            done.set()

    await queen.queue("orders").group("g").batch(5).each().timeout_millis(200).consume(handle, signal=done)
    return {"handled": handled}


async def ask_for_what_is_not_served(queen: Any) -> dict[str, Any]:
    """Transactions with parts that queen-mq 2 has beside the operations, and calls of its other services."""

    def charge(transaction: Any) -> Any:
        return transaction.queue("charges").push([{"data": 7}]).commit()

    def timed(transaction: Any) -> Any:
        return transaction.timer("later").key("k").payload(1).after_ms(5_000).schedule()

    lock = queen.lock("daily", ttl_seconds=30)
    return {
        "once": await said(charge(queen.transaction().once("payments", "order-7", ttl_seconds=600))),
        "put": await said(charge(queen.transaction().kv.put("names", "k", 1, ttl_seconds=60))),
        "put alone": await said(queen.transaction().kv.put("names", "k", 1, ttl_seconds=60).commit()),
        "timer": await said(charge(timed(queen.transaction()))),
        "both": await said(charge(timed(queen.transaction().once("payments", "order-7", ttl_seconds=600)))),
        "kv": await said(queen.kv.put("names", "k", 1, ttl_seconds=60)),
        "lock": await said(lock.acquire()),
        "fetch": await said(queen.queue("charges").fetch("Default")),
        "changed": await said(queen.queue("charges").changed_since()),
        "schedule": await said(queen.timer("later").key("k").payload(1).after_ms(5_000).schedule()),
        "charges": await queen.queue("charges").wait(False).pop(),
    }


async def said(asked: Any) -> str:
    """What it raises."""
    try:
        return f"no error: {await asked!r}"
    except Exception as error:
        return str(error)


DEEDS = {deed.__name__: deed for deed in (try_core_calls, fail_one_of_a_batch, ask_for_what_is_not_served)}


async def main(url: str, deed: str) -> None:
    async with Queen(url) as queen:
        seen = await DEEDS[deed](queen)
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
