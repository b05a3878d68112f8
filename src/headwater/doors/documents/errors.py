"""Errors as clients of documents read them: `{code, message}`, with codes of theirs, beside our own problem JSON."""

from collections.abc import Awaitable

import msgspec

from headwater.doors.wire import Handler, Problem, Request, Response

PREFIXES = ("/api/v1/databases/", "/trigger/v1/", "/replication/v1/")
_codes = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "BAD_REQUEST",
    409: "CONFLICT",
    412: "PRECONDITION_FAILED",
    413: "REQUEST_TOO_LARGE",
    415: "BAD_REQUEST",
    429: "RATE_LIMITED",
    507: "QUOTA_EXCEEDED",
}
_own_codes = {"database_not_found": "DATABASE_NOT_FOUND"}
_problem = msgspec.json.Decoder(Problem)


class DocumentProblem(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem with `code` and `message` as these clients read them; `reason` is our own code."""

    message: str
    reason: str


def in_their_words(handler: Handler) -> Handler:
    """The same door; what it refuses on paths of documents is told as their clients read it."""

    def answer(request: Request) -> Awaitable[Response]:
        return answer_about_documents(request) if request.path.startswith(PREFIXES) else handler(request)

    async def answer_about_documents(request: Request) -> Response:
        response = await handler(request)
        if response.content_type != "application/problem+json":
            return response
        return msgspec.structs.replace(response, body=msgspec.json.encode(told(_problem.decode(response.body))))

    return answer


def told(problem: Problem) -> DocumentProblem:
    """A problem in their words."""
    code = _own_codes.get(problem.code) or _codes.get(problem.status, "INTERNAL_ERROR")
    about = {**msgspec.structs.asdict(problem), "code": code}
    return DocumentProblem(**about, message=problem.detail, reason=problem.code)
