"""A stand-in for a MongoDB replica set of one: speaks the wire protocol (OP_MSG) as far as a change stream needs it.

No `mongod` can be had where the tests run. What it does is what MongoDB's documents say of it: a change stream is a
tailable cursor over an operation log, every answer has a `postBatchResumeToken`, a stream resumes after a token, and a
token that the log no longer has is error 286.
"""

import asyncio
import itertools
import struct
from contextlib import suppress
from typing import Any

import bson
from bson.timestamp import Timestamp

HISTORY_LOST = 286
NO_REPLICA_SET = 40573
_header = struct.Struct("<iiii")
OP_MSG = 2013


class Failure(Exception):
    """A command is refused with a code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class MongoServer:
    """One node, whose collections and operation log are lists in memory."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[Any, dict[str, Any]]] = {}
        self.log: list[dict[str, Any]] = []
        self.is_replica_set = True
        # Changes that are no longer in the log, as on a server whose log is full.
        self.dropped = 0
        self._cursors: dict[int, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        """What a driver connects by."""
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet=rs0"

    async def start(self, port: int = 0) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go away, with everybody who is connected."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        for task in list(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        self._cursors.clear()

    # ── what a test writes ──

    def insert(self, name: str, document: dict[str, Any]) -> None:
        """A document comes to a collection."""
        self.documents.setdefault(name, {})[document["_id"]] = document
        self._tell("insert", name, document["_id"], fullDocument=document)

    def update(self, name: str, key: Any, **fields: Any) -> None:
        """Fields of a document change."""
        before = self.documents[name][key]
        after = self.documents[name][key] = {**before, **fields}
        self._tell("update", name, key, fullDocument=after, fullDocumentBeforeChange=before)

    def delete(self, name: str, key: Any) -> None:
        """A document goes."""
        before = self.documents[name].pop(key)
        self._tell("delete", name, key, fullDocumentBeforeChange=before)

    def drop(self, name: str) -> None:
        """A collection goes."""
        self.documents.pop(name, None)
        self._tell("drop", name, None)

    def rename(self, name: str) -> None:
        """A collection is called otherwise."""
        self._tell("rename", name, None)

    def _tell(self, kind: str, name: str, key: Any, **more: Any) -> None:
        database, collection = name.split(".", 1)
        change = {
            "_id": {"_data": f"{len(self.log) + 1:08x}"},
            "operationType": kind,
            "clusterTime": Timestamp(1_700_000_000 + len(self.log), 1),
            "ns": {"db": database, "coll": collection},
            **({} if key is None else {"documentKey": {"_id": key}}),
            **more,
        }
        self.log.append(change)
        self._news.set()
        self._news = asyncio.Event()

    # ── the wire ──

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        self._writers.add(writer)
        try:
            while True:
                size, number, _, kind = _header.unpack(await reader.readexactly(_header.size))
                body = await reader.readexactly(size - _header.size)
                assert kind == OP_MSG, "drivers of today say hello by OP_MSG when they are told loadBalanced or an API"
                answer = await self._answer(bson.decode(body[5:]))
                data = b"\0\0\0\0\0" + bson.encode(answer)
                writer.write(_header.pack(_header.size + len(data), next(self._numbers), number, OP_MSG) + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._conversations.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, command: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(command))
        handler = getattr(self, f"_on_{name.lower()}", None)
        if handler is None:
            return {"ok": 1.0}
        try:
            return {**await handler(command), "ok": 1.0}
        except Failure as failure:
            return {"ok": 0.0, "code": failure.code, "errmsg": str(failure)}

    async def _on_hello(self, command: dict[str, Any]) -> dict[str, Any]:
        me = f"127.0.0.1:{self.port}"
        return {
            "helloOk": True,
            "isWritablePrimary": True,
            "ismaster": True,
            "setName": "rs0",
            "hosts": [me],
            "me": me,
            "primary": me,
            "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0,
            "maxWireVersion": 21,
        }

    _on_ismaster = _on_hello

    async def _on_find(self, command: dict[str, Any]) -> dict[str, Any]:
        name = f"{command['$db']}.{command['find']}"
        rows = sorted(self.documents.get(name, {}).values(), key=lambda row: str(row["_id"]))
        return {"cursor": {"id": 0, "ns": name, "firstBatch": rows}}

    async def _on_aggregate(self, command: dict[str, Any]) -> dict[str, Any]:
        if not self.is_replica_set:
            raise Failure(NO_REPLICA_SET, "The $changeStream stage is only supported on replica sets")
        stage, match = command["pipeline"][0]["$changeStream"], command["pipeline"][1]["$match"]
        token = stage.get("resumeAfter")
        place = len(self.log) if token is None else int(token["_data"], 16)
        self._check(place)
        cursor = {"place": place, "names": match["ns.coll"]["$in"]}
        number = 1_000 + next(self._numbers)
        self._cursors[number] = cursor
        return self._batch(number, cursor, "firstBatch", [])

    async def _on_getmore(self, command: dict[str, Any]) -> dict[str, Any]:
        cursor = self._cursors.get(command["getMore"])
        if cursor is None:
            raise Failure(43, "cursor not found")
        found = self._found(cursor)
        if not found:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), command.get("maxTimeMS", 1_000) / 1_000)
            found = self._found(cursor)
        return self._batch(command["getMore"], cursor, "nextBatch", found)

    def _found(self, cursor: dict[str, Any]) -> list[dict[str, Any]]:
        self._check(cursor["place"])
        found = [change for change in self.log[cursor["place"] :] if change["ns"]["coll"] in cursor["names"]]
        cursor["place"] = len(self.log)
        return found

    def _batch(self, number: int, cursor: dict[str, Any], name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
        token = {"_data": f"{cursor['place']:08x}"}
        return {"cursor": {"id": number, "ns": "shop.$cmd.aggregate", name: found, "postBatchResumeToken": token}}

    def _check(self, place: int) -> None:
        if place < self.dropped:
            raise Failure(HISTORY_LOST, "Resume of change stream was not possible, as the resume point is gone")
