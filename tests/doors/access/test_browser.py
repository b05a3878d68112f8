"""Foreign pages stay outside; programs and pages of ours do not notice."""

from typing import Any

import pytest

from headwater.doors.access.browser import for_our_pages, is_same_origin
from headwater.doors.access.guard import guarded
from headwater.doors.access.settings import AccessSettings, Auth, load_access
from headwater.doors.wire import Response
from tests.doors.access.visits import document, header, say_who, visit

HERE = "127.0.0.1:6632"
OURS = f"http://{HERE}"
PATH = "/api/v1/pop/queue/orders"
APP = "https://app.example.org"


async def ask(method: str = "GET", path: str = PATH, body: bytes = b"", /, **headers: str) -> Response:
    """What a server on loopback without authentication answers."""
    door = guarded(say_who, load_access({}), None, None, None)  # type: ignore[arg-type]
    return await door(visit(path, method, body, **{"host": HERE, **headers}))


def code(response: Response) -> Any:
    return (response.status, document(response).get("code"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"user_agent": "curl/8", "content_type": "application/x-www-form-urlencoded"},
        {"content_type": "application/json"},
        {"content_type": "application/x-queen-push"},
        {"host": "localhost:6632"},
        {"host": "[::1]:6632"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_programs_are_let_through(method: str, headers: dict[str, str]) -> None:
    assert (await ask(method, PATH, b"{}", **headers)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": OURS},
        {"origin": OURS, "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none", "sec_fetch_mode": "navigate"},
        {"origin": "http://localhost:6632", "host": "localhost:6632"},
        {"origin": "http://[::1]:6632", "host": "[::1]:6632"},
        {"origin": "http://localhost", "host": "localhost"},
        {"origin": "http://localhost", "host": "localhost:80"},
        {"origin": "https://localhost", "host": "localhost:443"},
    ],
)
async def test_pages_of_ours_and_typed_addresses_are_let_through(headers: dict[str, str]) -> None:
    assert (await ask(**headers)).status == 200
    assert (await ask("POST", PATH, b"{}", content_type="application/json; charset=utf-8", **headers)).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://evil.example:6632",
        "https://127.0.0.1.evil.example:6632",
        "http://127.0.0.1:6632.evil.example",
        "http://127.0.0.1:3000",
        "http://127.0.0.1",
        "http://localhost:6632",
        "null",
        "",
        "file://",
        "http://",
        "http://127.0.0.1:6632/",
        "http://127.0.0.1:6632/path",
        "http://user@127.0.0.1:6632",
        "127.0.0.1:6632",
        "ftp://127.0.0.1:6632",
        "http://127.0.0.1:6632 http://evil.example",
        "http://[::1",
        "*",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_pages_of_others_are_refused(method: str, origin: str) -> None:
    response = await ask(method, origin=origin)
    assert code(response) == (403, "origin_not_allowed")
    assert header(response, "access-control-allow-origin") is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:6632", "127.0.0.1.evil.example", "10.0.0.1:6632", "localhost."]
)
async def test_a_name_that_was_bent_to_this_machine_is_refused(host: str) -> None:
    """DNS rebinding: page and request have the same origin, and it is a stranger's."""
    response = await ask(host=host, origin=f"http://{host}", sec_fetch_site="same-origin")
    assert code(response) == (403, "host_not_allowed")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "whatever"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "navigate", ""])
async def test_an_image_or_a_frame_on_a_foreign_page_reaches_nothing(site: str, mode: str) -> None:
    """They have no origin; a pop by GET would take messages."""
    response = await ask("GET", PATH, sec_fetch_site=site, sec_fetch_mode=mode)
    assert code(response) == (403, "origin_not_allowed")


async def test_a_link_on_a_foreign_page_may_lead_to_our_first_page() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert (await ask("GET", "/", **link)).status == 200
    assert (await ask("POST", "/", **link)).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("kind", ["iframe", "frame", "object", "embed", "fencedframe", "image", ""])
async def test_a_foreign_page_cannot_put_our_first_page_into_a_frame(site: str, kind: str) -> None:
    """Whoever is asked to click there does not see where."""
    framed = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": kind}
    assert code(await ask("GET", "/", **framed)) == (403, "origin_not_allowed")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
async def test_a_page_writes_json_and_nothing_else(kind: str) -> None:
    response = await ask("POST", PATH, b"{}", origin=OURS, content_type=kind)
    assert code(response) == (415, "not_json")
    assert (await ask("POST", origin=OURS, content_type=kind)).status == 200, "without a body there is nothing to type"


# ── origins that were allowed ──


async def ask_allowed(method: str = "GET", origin: str = APP, /, **headers: str) -> Response:
    return await for_our_pages(say_who, [APP])(visit("/", method, host=HERE, origin=origin, **headers))


async def test_an_origin_that_was_allowed_is_answered_by_its_name() -> None:
    response = await ask_allowed()
    assert response.status == 200
    assert header(response, "access-control-allow-origin") == APP
    assert header(response, "vary") == "origin"


async def test_a_browser_that_asks_first_is_told_what_an_allowed_page_may_do() -> None:
    response = await ask_allowed("OPTIONS", access_control_request_method="POST")
    assert (response.status, response.body) == (204, b"")
    assert header(response, "access-control-allow-origin") == APP
    assert "authorization" in (header(response, "access-control-allow-headers") or "")
    assert "*" not in str(response.headers)
    assert header(response, "access-control-allow-credentials") is None


async def test_an_origin_that_only_looks_like_it_is_refused() -> None:
    for origin in (
        "http://app.example.org",
        "https://app.example.org:8443",
        "https://APP.example.org",
        f"{APP}.evil.example",
    ):
        assert (await ask_allowed("GET", origin)).status == 403
        assert (await ask_allowed("OPTIONS", origin, access_control_request_method="POST")).status == 403


# ── behind authentication ──


async def test_with_authentication_any_host_is_answered_unless_names_are_given() -> None:
    class Nothing:
        def access_version(self) -> int:
            return 0

    for hosts, status in (((), 401), (("q.example.org",), 403)):
        settings = AccessSettings(auth=(Auth.TOKEN,), allowed_hosts=hosts)
        door = guarded(say_who, settings, Nothing(), None, None)  # type: ignore[arg-type]
        assert (await door(visit(host="other.example.org"))).status == status
        for ours in ("Q.example.org:6632", "127.0.0.1"):
            assert (await door(visit(host=ours))).status == 401


def test_the_usual_port_is_the_one_of_the_scheme() -> None:
    assert is_same_origin("https://a.example", "a.example:443")
    assert is_same_origin("https://a.example:443", "A.example")
    assert not is_same_origin("https://a.example:80", "a.example")
    assert not is_same_origin("http://a.example:443", "a.example")
