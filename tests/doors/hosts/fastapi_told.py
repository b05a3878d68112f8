"""FastAPI, which opens and closes the store with its own start and stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import headwater
from tests.doors.hosts import PREFIX, STORE

queues = headwater.asgi(STORE)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with queues:
        yield


app = FastAPI(lifespan=lifespan)
app.mount(PREFIX, queues)


@app.get("/own")
async def own() -> dict[str, str]:
    return {"who": "the host"}
