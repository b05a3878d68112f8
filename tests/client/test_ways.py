"""Other ways to a server: encrypted, with a certificate that has to be trusted first, and mounted in another app."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import headwater
import headwater.sync
from headwater.app import open_door
from headwater.doors.edge.server import Edge
from headwater.errors import ConfigError, HeadwaterError, ServerUnreachable, ServerUnreadable
from tests.certificates import Certificate, make_certificate
from tests.cli.program import Program
from tests.doors.live_door import inside_another_app


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as opened:
        yield opened


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@asynccontextmanager
async def encrypted(hw: headwater.Headwater, certificate: Certificate) -> AsyncIterator[str]:
    """A server that speaks HTTPS, and its address."""
    async with open_door(hw) as door:
        edge = Edge(door)
        await edge.start("127.0.0.1", 0, tls=certificate.server())
        yield f"https://127.0.0.1:{edge.port}"
        hw.queues_service.intentions.drain()
        edge.abort()
        await edge.stop()


async def use(client: headwater.Database) -> set[str]:
    """A little of everything that goes over a connection: small, large, waiting, streaming, together."""
    orders = client.queue("orders")
    await orders.push_many([{"n": number, "filling": "x" * 20_000} for number in range(20)])
    assert [message.payload["n"] for message in await orders.pop(batch=20, auto_ack=True)] == list(range(20))
    waiting = asyncio.ensure_future(orders.pop(wait=10))
    await asyncio.sleep(0)
    await orders.push("awaited")
    (message,) = await waiting
    async with client.transaction() as together:
        together.ack([message])
        together.push("done", message.payload)
    async for received in client.queue("done").consume(group="g"):
        assert received.payload == "awaited"
        break
    return {status.queue for status in await client.queues()}


@pytest.mark.parametrize("trust", ["a file", "a context"])
async def test_everything_works_encrypted(hw: headwater.Headwater, certificate: Certificate, trust: str) -> None:
    context = ssl.create_default_context(cafile=certificate.shown)
    tls = str(certificate.shown) if trust == "a file" else context
    async with encrypted(hw, certificate) as url, headwater.connect(url, tls=tls) as client:
        assert await use(client) == {"orders", "done"}


async def test_everything_works_encrypted_without_async(hw: headwater.Headwater, certificate: Certificate) -> None:
    def work(url: str) -> object:
        with headwater.sync.connect(url, tls=str(certificate.shown)) as client:
            client.queue("orders").push(7)
            return client.queue("orders").pop()[0].payload

    async with encrypted(hw, certificate) as url:
        assert await asyncio.to_thread(work, url) == 7


async def test_the_command_line_trusts_what_the_surroundings_say(
    hw: headwater.Headwater, certificate: Certificate, tmp_path: Path
) -> None:
    program = Program(tmp_path)
    async with encrypted(hw, certificate) as url:
        push = partial(program.run_process, "push", "orders", "7", "--server", url)
        pushed = await asyncio.to_thread(push, SSL_CERT_FILE=str(certificate.shown))
        assert (pushed.code, pushed.err) == (0, "")
        refused = await asyncio.to_thread(program.run_process, "queues", "--server", url, "--json")
        assert (refused.code, refused.error()["code"]) == (3, "server_unreadable")
        assert "SSL_CERT_FILE" in refused.error()["message"]
        assert "certificate" in refused.err


async def test_a_certificate_that_is_not_trusted_or_of_another_name_is_refused(
    hw: headwater.Headwater, certificate: Certificate, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", "127.0.0.2")
    async with encrypted(hw, certificate) as url:
        for tls in (None, str(other.shown)):
            with pytest.raises(ServerUnreadable, match="certificate is not trusted"):
                await headwater.connect(url, tls=tls).start()
    async with encrypted(hw, other) as url:
        with pytest.raises(ServerUnreadable, match="certificate is not trusted"):
            await headwater.connect(url, tls=str(other.shown)).start()


async def test_the_wrong_kind_of_address_is_told(hw: headwater.Headwater, certificate: Certificate) -> None:
    async with encrypted(hw, certificate) as url:
        with pytest.raises(HeadwaterError):
            await headwater.connect(url.replace("https", "http"), retry_seconds=0).start()
        with pytest.raises(ConfigError, match="https"):
            headwater.connect(url.replace("https", "http"), tls=str(certificate.shown))
        for wrong in ("missing.pem", str(certificate.kept)):
            with pytest.raises(ConfigError, match="tls"):
                headwater.connect(url, tls=wrong)
    async with open_door(hw) as door:
        edge = Edge(door)
        await edge.start("127.0.0.1", 0)
        with pytest.raises(ServerUnreachable):
            await headwater.connect(f"https://127.0.0.1:{edge.port}", retry_seconds=0).start()
        await edge.stop()


async def test_everything_works_through_an_app_that_headwater_is_mounted_in(hw: headwater.Headwater) -> None:
    async with inside_another_app(hw) as url, headwater.connect(url) as client:
        assert await use(client) == {"orders", "done"}
