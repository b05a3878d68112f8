"""What a guard answers instead of the routes, with the header that says what to do about it."""

import math
from http import HTTPStatus

from headwater.doors.wire import Request, Response, error_response, problem_response
from headwater.errors import HeadwaterError, RateExceeded, Unauthenticated

REALM = 'Bearer realm="headwater"'


def refuse(
    request: Request, status: HTTPStatus, code: str, detail: str, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    """An answer that says no, and why."""
    return problem_response(status, code, detail, request_id=request.id, headers=headers)


def refusal(request: Request, error: HeadwaterError) -> Response:
    """What keeps a guard from letting somebody in, as an answer."""
    if isinstance(error, Unauthenticated):
        return ask_who(request, error)
    if isinstance(error, RateExceeded):
        return ask_to_wait(request, error)
    return error_response(error, request.id)


def ask_who(request: Request, error: Unauthenticated) -> Response:
    """401. Whoever showed a credential learns that it is not good, and nothing else about it."""
    challenge = f'{REALM}, error="invalid_token"' if "authorization" in request.headers else REALM
    return refuse(request, HTTPStatus.UNAUTHORIZED, error.code, str(error), (("www-authenticate", challenge),))


def ask_to_wait(request: Request, error: RateExceeded) -> Response:
    """429, with the seconds to wait."""
    seconds = str(max(1, math.ceil(error.retry_seconds)))
    return refuse(request, HTTPStatus.TOO_MANY_REQUESTS, error.code, str(error), (("retry-after", seconds),))
