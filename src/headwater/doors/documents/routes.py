"""All routes of documents, as data."""

from typing import Any

from headwater.doors.documents import handlers, replication, shapes
from headwater.doors.routes import Route
from headwater.model.document import Fields
from headwater.model.principal import Scope

DATABASE = "/api/v1/databases/{database}"
AT_PATH = f"{DATABASE}/documents/{{path}}"
TRIGGER = "/trigger/v1/databases/{database}"

_read: dict[str, Any] = {"scope": Scope.READ_DOCUMENTS}

ROUTES = (
    Route(method="GET", path=AT_PATH, handler=handlers.get, summary="A document", gives=shapes.FlatDocument, **_read),
    Route(
        method="POST",
        path=AT_PATH,
        handler=handlers.create,
        summary="Make a document in the collection that the path names",
        scope=Scope.CREATE_DOCUMENTS,
        takes=Fields,
        gives=shapes.FlatDocument,
        status=201,
    ),
    Route(
        method="PUT",
        path=AT_PATH,
        handler=handlers.put,
        summary="Make a document, or replace all of its fields",
        scope=Scope.UPDATE_DOCUMENTS,
        takes=shapes.WriteRequest,
        gives=shapes.FlatDocument,
    ),
    Route(
        method="PATCH",
        path=AT_PATH,
        handler=handlers.patch,
        summary="Change fields of a document",
        scope=Scope.UPDATE_DOCUMENTS,
        takes=shapes.WriteRequest,
        gives=shapes.FlatDocument,
    ),
    Route(
        method="DELETE",
        path=AT_PATH,
        handler=handlers.delete,
        summary="Delete a document",
        scope=Scope.DELETE_DOCUMENTS,
        takes=shapes.DeleteRequest,
        status=204,
        content_types=("text/plain",),
    ),
    Route(
        method="POST",
        path=f"{DATABASE}/query",
        handler=handlers.query,
        summary="Documents by filters, in order",
        takes=shapes.QueryRequest,
        gives=shapes.DocumentsAnswer,
        **_read,
    ),
    Route(
        method="POST",
        path=f"{TRIGGER}/get",
        handler=handlers.get_by_path,
        summary="A document by its path, as a list",
        takes=shapes.GetRequest,
        gives=shapes.DocumentsAnswer,
        **_read,
    ),
    Route(
        method="POST",
        path=f"{TRIGGER}/query",
        handler=handlers.query,
        summary="Documents by filters, in order",
        takes=shapes.QueryRequest,
        gives=shapes.DocumentsAnswer,
        **_read,
    ),
    Route(
        method="POST",
        path=f"{TRIGGER}/write",
        handler=handlers.write,
        summary="Writes that take effect together or not at all",
        scope=Scope.UPDATE_DOCUMENTS,
        or_scopes=(Scope.CREATE_DOCUMENTS, Scope.DELETE_DOCUMENTS),
        takes=shapes.BatchRequest,
        gives=shapes.DocumentsAnswer,
    ),
    Route(
        method="POST",
        path="/replication/v1/pull",
        handler=replication.pull,
        summary="What a replica has not read yet, in the order of commits",
        takes=shapes.PullRequest,
        gives=shapes.PullAnswer,
        **_read,
    ),
    Route(
        method="POST",
        path="/replication/v1/push",
        handler=replication.push,
        summary="Take in what a replica has written; what conflicts is answered",
        takes=shapes.PushRequest,
        gives=list[shapes.ReplicaDocument],
        blame=replication.blame_row,
        **_read,
    ),
)
