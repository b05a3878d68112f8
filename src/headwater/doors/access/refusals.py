"""What a guard answers instead of the routes: problem JSON, with the text under `error` too, where queen-mq clients
look for it, and the header that says what to do about it.
"""

import math
from http import HTTPStatus

import msgspec

from headwater.doors.wire import Problem, Request, Response
from headwater.errors import RateExceeded, Unauthenticated

REALM = 'Bearer realm="headwater"'


class _Refusal(Problem, frozen=True, kw_only=True, omit_defaults=True):
    error: str


def refuse(
    request: Request, status: HTTPStatus, code: str, detail: str, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An answer that says no, and why."""
    problem = _Refusal(
        title=status.phrase, status=status, code=code, detail=detail, error=detail, request_id=request.id
    )
    return Response(
        status=status, content_type="application/problem+json", body=msgspec.json.encode(problem), headers=headers
    )


def ask_who(request: Request, error: Unauthenticated) -> Response:
    """401. Whoever showed a credential learns that it is not good, and nothing else about it."""
    challenge = f'{REALM}, error="invalid_token"' if "authorization" in request.headers else REALM
    return refuse(request, HTTPStatus.UNAUTHORIZED, error.code, str(error), (("www-authenticate", challenge),))


def ask_to_wait(request: Request, error: RateExceeded) -> Response:
    """429, with the seconds to wait."""
    seconds = str(max(1, math.ceil(error.retry_seconds)))
    return refuse(request, HTTPStatus.TOO_MANY_REQUESTS, error.code, str(error), (("retry-after", seconds),))
