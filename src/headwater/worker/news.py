"""How whatever happens in a worker wakes its loop."""

import asyncio


class News:
    """Somebody waits for news; whoever has some tells."""

    def __init__(self) -> None:
        self._has_news = False
        self._waiter: asyncio.Future[None] | None = None

    def forget(self) -> None:
        """What was told so far is known."""
        self._has_news = False

    def tell(self) -> None:
        """There are news."""
        self._has_news = True
        self._wake()

    async def hear(self, seconds: float | None) -> bool:
        """Until there are news; False when the time came first."""
        if self._has_news:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self._has_news

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
