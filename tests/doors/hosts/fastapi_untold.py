"""FastAPI that says nothing of its start and stop, with a middleware of the kind that wraps what a client says."""

from fastapi import FastAPI, Request, Response
from starlette.middleware.base import RequestResponseEndpoint

import headwater
from tests.doors.hosts import PREFIX, STORE

app = FastAPI()
app.mount(PREFIX, headwater.asgi(STORE))


@app.middleware("http")
async def mark(request: Request, answer: RequestResponseEndpoint) -> Response:
    response = await answer(request)
    response.headers["x-host"] = "was here"
    return response


@app.get("/own")
async def own() -> dict[str, str]:
    return {"who": "the host"}
