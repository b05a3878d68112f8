"""How far a replica has read, and where in the log that is."""

from typing import Annotated

import msgspec

from headwater.model.document import Document
from headwater.model.names import Lsn
from headwater.services.queues import Queues
from headwater.stores.document_questions import FindDocument

Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a replica has read. `lsn` and `store` are the place in the log, and whose log it is; a checkpoint without
    them is that of a client which keeps only the pair."""

    updated_at: Number = 0
    id: str = ""
    lsn: Number | None = None
    identity: str = msgspec.field(default="", name="store")


def checkpoint_of(document: Document, identity: str) -> Checkpoint:
    """The checkpoint behind a document."""
    return Checkpoint(updated_at=document["updatedAt"], id=document.id, lsn=document.lsn, identity=identity)


async def place_behind(
    queues: Queues, place: tuple[str, str], checkpoint: Checkpoint | None, identity: str
) -> tuple[Lsn, str]:
    """Behind which commit and document a replica of a (database, collection) goes on."""
    if checkpoint is None or not checkpoint.id:
        return Lsn(0), ""
    if checkpoint.lsn is not None and checkpoint.identity == identity:
        return Lsn(checkpoint.lsn), checkpoint.id
    if checkpoint.lsn is not None:
        return Lsn(0), ""
    found: Document | None = await queues.ask(FindDocument(*place, checkpoint.id))
    if found is None or found["updatedAt"] != checkpoint.updated_at:
        return Lsn(0), ""
    return found.lsn, found.id
