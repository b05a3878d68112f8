"""One line for each request, when somebody asks for it: who, what, how it ended and how long it took."""

import logging
import time

from headwater.doors.wire import CONTINUE, Handler, Request, Response

log = logging.getLogger("headwater.access")


def logged(handler: Handler) -> Handler:
    """The same door, with a line in the log for everything that passes. Queries and bodies are not told."""

    async def answer(request: Request) -> Response:
        began = time.perf_counter()
        status = 0
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            # A request whose body is still to come passes here again.
            if status != CONTINUE.status:
                _note(request, status, time.perf_counter() - began)

    return answer


def _note(request: Request, status: int, seconds: float) -> None:
    """Status 0: the client left before there was an answer."""
    milliseconds = round(seconds * 1_000, 3)
    fields = {
        "request_id": request.id,
        "client": request.client,
        "method": request.method,
        "path": request.path,
        "status": status,
        "milliseconds": milliseconds,
    }
    log.info(
        "%s %s %s %d %.3f ms %s",
        request.client or "-",
        request.method,
        request.path,
        status,
        milliseconds,
        request.id,
        extra={"fields": fields},
    )
