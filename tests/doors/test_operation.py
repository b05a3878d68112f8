"""What those who run a server see: readiness, metrics, the status page, the access log, proxies."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.doors.access_log import logged
from headwater.doors.proxies import behind_proxies, parse_networks
from headwater.doors.wire import Request, Response
from headwater.errors import ConfigError
from tests.doors.conftest import MakeDoor
from tests.doors.live_door import LiveDoor
from tests.doors.test_queues import ack, pop, push, report
from tests.waiting import expect_soon


def samples(client: httpx.Client) -> dict[str, float]:
    """The metrics by name, with the labels that tell queues, groups and routes apart."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = ",".join(value for name, value in sorted(sample.labels.items()) if name != "process")
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_metrics_count_what_was_done(client: httpx.Client) -> None:
    push(client, 1, 2, 3)
    (message,) = pop(client, consumerGroup="g")
    ack(client, message)
    found = samples(client)
    assert found["headwater_records_pushed_total"] == 3
    assert found["headwater_records_popped_total"] == 1
    assert found["headwater_records_settled_total"] == 1
    assert found["headwater_queue_records{orders}"] == 3
    assert found["headwater_group_lag{g,orders}"] == 2
    assert found["headwater_http_requests_total{POST,/api/v1/push,201}"] == 1
    assert found["headwater_commits_total"] >= 3
    assert found["headwater_operation_seconds_count{Push}"] == 1
    assert found["headwater_operation_seconds_bucket{10.0,Push}"] == 1
    assert found["headwater_sync_seconds_count"] >= 1
    # Those who read the metrics ask, too; that is told the next time.
    assert samples(client)["headwater_question_seconds_count{ListQueues}"] >= 1


def test_metrics_count_what_transactions_do(client: httpx.Client) -> None:
    push(client, 1, 2)
    messages = pop(client, batch=2)
    acks = [{"type": "ack", **report(message)} for message in messages]
    pushes = {"type": "push", "items": [{"queue": "invoices", "payload": number} for number in range(3)]}
    for _ in range(2):
        body = {"operations": [*acks, pushes], "idempotencyKey": "once"}
        assert client.post("/api/v1/transaction", json=body).json()["success"] is True
    found = samples(client)
    assert (found["headwater_records_pushed_total"], found["headwater_records_settled_total"]) == (5, 2)
    counters = client.get("/api/v1/status").json()["counters"]
    assert (counters["pushed_records"], counters["settled_records"]) == (5, 2)


async def test_metrics_count_what_consumers_and_transactions_of_our_client_do(
    door: LiveDoor, client: httpx.Client
) -> None:
    async with headwater.connect(door.url) as hw:
        orders = hw.queue("orders")
        await orders.push_many(list(range(10)))
        seen = 0
        async with orders.consume(batch=3) as messages:
            async for _ in messages:
                seen += 1
                if seen == 10:
                    break
        async with hw.transaction() as transaction:
            transaction.push("orders", 11)
        (last,) = await orders.pop(batch=10)
        await orders.release([last])
    found = samples(client)
    assert (found["headwater_records_pushed_total"], found["headwater_records_settled_total"]) == (11, 10)


def test_metrics_count_messages_that_die_with_their_lease(client: httpx.Client) -> None:
    client.post("/api/v1/configure", json={"queue": "orders", "options": {"retryLimit": 0, "leaseTime": 1}})
    push(client, 1, 2)
    (message,) = pop(client, consumerGroup="g")
    ack(client, message, status="dlq", consumerGroup="g")
    assert samples(client)["headwater_records_buried_total"] == 1
    assert pop(client, consumerGroup="g")

    def both_are_dead() -> bool:
        pop(client, consumerGroup="g")
        return samples(client)["headwater_queue_dead_letters{orders}"] == 2

    expect_soon(both_are_dead)
    assert samples(client)["headwater_records_buried_total"] == 2
    assert client.get("/api/v1/status").json()["counters"]["dead_letters"] == 2


def test_metrics_tell_how_waiting_pops_fare(door: LiveDoor, client: httpx.Client) -> None:
    client.get("/api/v1/pop/queue/orders", params={"wait": "true", "timeout": 10})
    found = samples(client)
    assert (found["headwater_waiting_pops"], found["headwater_poll_timeouts_total"]) == (0, 1)
    assert "headwater_poll_delivery_seconds_bucket{+Inf}" in found


def test_a_path_that_is_not_there_is_counted_without_its_name(client: httpx.Client) -> None:
    client.get("/some/secret")
    assert samples(client)["headwater_http_requests_total{,unmatched,404}"] == 1


def test_a_server_is_ready_until_it_goes_down(door: LiveDoor, client: httpx.Client) -> None:
    assert client.get("/ready").json()["status"] == "ok"
    door.loop.call_soon_threadsafe(door.hw.queues_service.intentions.drain)
    while client.get("/ready").status_code == 200:
        pass
    assert client.get("/ready").json()["code"] == "stopping"
    assert client.get("/health").status_code == 200


def test_a_browser_gets_a_page_without_script_and_with_names_as_text(client: httpx.Client) -> None:
    push(client, 1)
    pop(client, consumerGroup="mail")
    page = client.get("/", headers={"accept": "text/html,*/*"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert "orders → mail" in page.text
    assert page.headers["refresh"] == "2"
    assert client.get("/").headers["content-type"].startswith("text/plain")


# ── the access log ──


async def answer_plainly(request: Request) -> Response:
    return Response(status=201, body=request.client.encode())


async def test_a_request_leaves_a_line_without_its_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.access")
    await logged(answer_plainly)(Request(method="GET", path="/a", query="token=secret", id="7", client="10.0.0.1"))
    (record,) = caplog.records
    assert record.getMessage().startswith("10.0.0.1 GET /a 201 ")
    assert "secret" not in json.dumps(record.__dict__["fields"]) + record.getMessage()
    assert record.__dict__["fields"]["request_id"] == "7"


# ── proxies ──


@pytest.mark.parametrize(
    ("peer", "header", "client"),
    [
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "6.6.6.6, 203.0.113.9, 10.1.2.3", "203.0.113.9"),
        ("127.0.0.1", "10.1.2.3", "10.1.2.3"),
        ("127.0.0.1", "nonsense", "127.0.0.1"),
        ("127.0.0.1", "nonsense, 203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("198.51.100.1", "203.0.113.9", "198.51.100.1"),
        ("", "203.0.113.9", ""),
    ],
)
async def test_only_a_trusted_proxy_says_who_the_client_is(peer: str, header: str, client: str) -> None:
    door = behind_proxies(answer_plainly, parse_networks("127.0.0.1, 10.0.0.0/8"))
    request = Request(method="GET", path="/", headers={"x-forwarded-for": header}, client=peer)
    assert (await door(request)).body.decode() == client


def test_a_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="trusted proxies"):
        parse_networks("example.org")


@pytest.mark.parametrize("switch", ["", "/pop"])
def test_a_server_in_maintenance_is_not_ready(client: httpx.Client, switch: str) -> None:
    path = f"/api/v1/system/maintenance{switch}"
    assert client.post(path, json={"enabled": True}).status_code == 200
    expect_soon(lambda: client.get("/ready").json().get("code") == "maintenance")
    assert client.get("/health").status_code == 200
    assert client.post(path, json={"enabled": False}).status_code == 200
    expect_soon(lambda: client.get("/ready").status_code == 200)


def test_the_status_page_says_where_the_log_ends(client: httpx.Client) -> None:
    assert "LSN 0" in client.get("/", headers={"accept": "text/html"}).text
    push(client, 1)
    push(client, 2)
    assert "LSN 2" in client.get("/", headers={"accept": "text/html"}).text
    assert samples(client)["headwater_lsn"] == 2


def test_the_status_page_is_shown_in_no_frame(client: httpx.Client) -> None:
    """Also in browsers that do not say what a page is fetched for."""
    shown = client.get("/", headers={"accept": "text/html"})
    assert shown.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]


def test_metrics_say_what_is_free_of_what_a_process_has(client: httpx.Client) -> None:
    """S4-24: how much of what waiting and working needs is available."""
    found = samples(client)
    assert found["headwater_available_ratio{operations}"] == 1
    assert found["headwater_available_ratio{waiting_pops}"] == 1


def test_a_waiting_pop_makes_less_available(make_door: MakeDoor) -> None:
    """S4-24: 1 of 4 that may wait does."""
    door = make_door(waiters_max=4)
    with door.client() as client, ThreadPoolExecutor(1) as waiting:
        waits = waiting.submit(client.get, "/api/v1/pop/queue/orders?wait=true&timeout=20000")
        expect_soon(lambda: samples(client)["headwater_available_ratio{waiting_pops}"] == 0.75)
        push(client, 1)
        assert waits.result().status_code == 200


def test_queues_beyond_the_cap_share_one_line(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.doors.metrics.LABELLED_MAX", 2)
    for queue in ("a", "b", "c", "d"):
        push(client, 1, 2, queue=queue)
        pop(client, queue, consumerGroup="g")
    found = samples(client)
    assert {name: value for name, value in found.items() if name.startswith("headwater_queue_records")} == {
        "headwater_queue_records{a}": 2,
        "headwater_queue_records{b}": 2,
        "headwater_queue_records{*}": 4,
    }
    assert found["headwater_queues"] == 4
    assert found["headwater_group_lag{*,*}"] == 4
    assert "headwater_group_lag{g,c}" not in found


def test_long_lists_come_in_pages_or_as_a_stream(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.doors.listing.PAGE_ROWS", 2)
    names = ["a", "b", "c", "d", "e"]
    for queue in names:
        push(client, 1, queue=queue)
        pop(client, queue, consumerGroup="g")
        pop(client, queue, consumerGroup="h")
    assert [queue["queue"] for queue in client.post("/v1/questions/list-queues", json={}).json()] == names
    page = client.post("/v1/questions/list-queues", json={"part": {"after": ["b", ""], "limit": 2}}).json()
    assert [queue["queue"] for queue in page] == ["c", "d"]
    listed = client.post("/v1/questions/list-groups", json={}).json()
    groups = [(group["queue"], group["group"]) for group in listed]
    assert groups == [(queue, group) for queue in names for group in "gh"]
    page = client.post("/v1/questions/list-groups", json={"part": {"after": ["b", "g"], "limit": 3}}).json()
    assert [(group["queue"], group["group"]) for group in page] == [("b", "h"), ("c", "g"), ("c", "h")]
    for wrong in ({"limit": 0}, {"limit": -1}, {"limit": 10_001}, {"patterns": ["*"]}):
        assert client.post("/v1/questions/list-queues", json={"part": wrong}).status_code == 400
