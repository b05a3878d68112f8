"""Replication, as RxDB's protocol has it: pull what was written here, push what was written there.

A checkpoint is the pair that the protocol shows, `updatedAt` and `id`, and with it our own place: the commit that wrote
the document. Commits are read in their order, so one that took long is never passed over, whatever its clock said. A
checkpoint of another log, of other access rules, or of a document that was written since and has no place with it,
begins anew: that costs time and misses nothing. Of another log (another store, or this one put back from a copy) is
said, too: the replica may have documents that are not here.
"""

import json
import re
from collections.abc import AsyncGenerator

import msgspec

from headwater.doors.documents.handlers import permitted
from headwater.doors.documents.shapes import PullAnswer, PullRequest, PushRequest
from headwater.doors.native.documents import QUESTIONS
from headwater.doors.native.rules import allowed
from headwater.doors.site import Site, note_use
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import HeadwaterError, InvalidInput, InvalidOption
from headwater.log.document_operations import MergeDocuments
from headwater.model.document import Fields, changes_queue, named, replica_of
from headwater.services.replication import Pulled, Replica
from headwater.services.system_collections import NO_REPLICAS, is_system
from headwater.stores.document_questions import ListDocumentsAfter

_encoder = msgspec.json.Encoder()
_BEGINNING = b'{"documents":['
# Where a body is not what was expected, as its error says.
_row = re.compile(r"\$\.rows\[(\d+)\]")


async def pull(site: Site, request: Request, body: PullRequest) -> Response:
    """What a replica has not read yet."""
    if is_system(body.collection):
        raise InvalidOption(NO_REPLICAS)
    asked = ListDocumentsAfter(request.principal.database, body.collection, limit=body.limit)
    asked = await allowed(site, request, QUESTIONS[ListDocumentsAfter], asked)
    note_use(request, changes_queue(asked.collection))
    permit = request.principal.permit(asked.collection)
    parts = Replica(site.queues, asked.database, asked.collection, permit).pull_in_parts(body.checkpoint, asked.limit)
    first = await anext(parts)
    second = await anext(parts, None)
    if second is None:
        return json_response(PullAnswer(_told(first), first.checkpoint, first.resync, first.rules_changed))
    return Response(chunks=_in_parts(first, second, parts))


async def _in_parts(first: Pulled, second: Pulled, rest: AsyncGenerator[Pulled, None]) -> AsyncGenerator[bytes, None]:
    """One answer of any size, of which no more than a part is held: documents, and at the end how far they go."""
    yield _BEGINNING + _encoder.encode(_told(first))[1:-1]
    part: Pulled | None = second
    while part is not None:
        if part.documents:
            yield b"," + _encoder.encode(_told(part))[1:-1]
        reached = part.checkpoint
        part = await anext(rest, None)
    end = PullAnswer([], reached, first.resync, first.rules_changed)
    yield _encoder.encode(end).removeprefix(_BEGINNING)


def _told(pulled: Pulled) -> list[Fields]:
    return [replica_of(document) for document in pulled.documents]


async def push(site: Site, request: Request, body: PushRequest) -> Response:
    """Take in what a replica has written; what is here, in the place of what could not be taken."""
    if not body.rows:
        return json_response([])
    operation = MergeDocuments(database=request.principal.database, collection=body.collection, rows=body.rows)
    merged = await site.queues.run(await permitted(site, request, operation))
    return json_response([replica_of(document) for document in merged.conflicts])


def blame_row(error: InvalidInput, body: bytes) -> HeadwaterError:
    """What is wrong with a push, with the document of the row that it is about, as for a row that is refused later."""
    place = _row.search(str(error))
    if place is None:
        return error
    try:
        name = json.loads(body)["rows"][int(place[1])]["newDocumentState"]["id"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return error
    return named(error, name) if isinstance(name, str) and name.isprintable() else error
