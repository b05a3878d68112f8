"""What may be handed in about documents, whatever way it came."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headwater import filters
from headwater.config import Config
from headwater.errors import InvalidFilter, InvalidInput, InvalidName, InvalidOption, InvalidPayload, TooLarge
from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DropDocumentIndex,
    IndexDocuments,
    MergeDocuments,
    SetDocument,
    SetDocumentRules,
    UpdateDocument,
)
from headwater.log.operations import Operation
from headwater.model.document import (
    Condition,
    DocumentRow,
    Fields,
    OrderBy,
    check_collection,
    check_document_id,
    check_fields,
    encode_fields,
    named,
    replica_fields,
)
from headwater.model.document_rules import ACTIONS, RULES_MAX, DocumentRule
from headwater.services.checks import check_limit, check_list
from headwater.services.system_collections import is_system
from headwater.stores.document_questions import DocumentQuery

ROWS_MAX = 1_000
QUERY_LIMIT_MAX = 1_000
ORDER_FIELDS_MAX = 8
FIELD_LENGTH_MAX = 256

_pattern = re.compile(r"[A-Za-z0-9._:/*-]{1,200}")
_field = re.compile(r"[^\x00-\x1f.\"'\\]+(\.[^\x00-\x1f.\"'\\]+)*")

Changes = dict[str, Any]


def check_new(operation: CreateDocument | SetDocument | UpdateDocument, config: Config) -> Changes:
    """Where a document goes, and its fields."""
    _check_place(operation)
    return {"data": check_fields(operation.data, config.record_bytes_max)}


def check_set(operation: SetDocument | UpdateDocument, config: Config) -> Changes:
    """A document that is to be made or replaced."""
    return check_new(operation, config) | _conditions(operation)


def check_update(operation: UpdateDocument, config: Config) -> Changes:
    """Fields that are to be changed."""
    changes = check_set(operation, config)
    if bytes(changes["data"]) == b"{}":
        raise InvalidInput("there is nothing to change: name a field, and none of Headwater's own")
    return changes


def check_delete(operation: DeleteDocument, config: Config) -> Changes:
    """A document that is to be deleted."""
    _check_place(operation)
    return _conditions(operation)


def check_own(collection: str) -> str:
    """The collection itself when it may be written to."""
    if is_system(check_collection(collection)):
        raise InvalidName(f"collections whose names begin with an underscore are Headwater's own; got {collection!r}")
    return collection


def _check_place(operation: CreateDocument | SetDocument | UpdateDocument | DeleteDocument) -> None:
    check_own(operation.collection)
    check_document_id(operation.id)


def _conditions(operation: SetDocument | UpdateDocument | DeleteDocument) -> Changes:
    return {"if_match": check_conditions(operation.if_match)} if operation.if_match else {}


def check_merge(operation: MergeDocuments, config: Config) -> Changes:
    """What a replica has written."""
    if len(operation.rows) > ROWS_MAX:
        raise TooLarge(f"{ROWS_MAX:,} rows may be pushed at once; got {len(operation.rows):,}")
    rows = [_named_row(row, config.record_bytes_max) for row in operation.rows]
    return {"collection": check_own(operation.collection), "rows": rows}


def _named_row(row: DocumentRow, bytes_max: int) -> DocumentRow:
    try:
        return _row(row, bytes_max)
    except InvalidInput as error:
        raise named(error, row.new_document_state.get("id")) from error.__cause__


def _row(row: DocumentRow, bytes_max: int) -> DocumentRow:
    state = row.new_document_state
    name = check_document_id(state.get("id"))
    if state.get("_attachments"):
        # What is not kept is not taken: the replica would read the document back without them, and lose its own.
        raise InvalidPayload("it has attachments, which are not replicated: take them out of what is pushed")
    fields = msgspec.json.decode(encode_fields(replica_fields(state), bytes_max))
    if row.assumed_master_state is not None:
        _is_deleted(row.assumed_master_state)
    return DocumentRow({**fields, "id": name, "_deleted": _is_deleted(state)}, row.assumed_master_state)


def _is_deleted(state: Fields) -> bool:
    """Whether a state is that of a deleted document. A text that says no would be taken for a yes."""
    deleted = state.get("_deleted")
    if deleted is not None and not isinstance(deleted, bool):
        raise InvalidPayload(f"`_deleted` of a document is true or false; got {deleted!r:.80}")
    return deleted is True


def check_index(operation: IndexDocuments | DropDocumentIndex, config: Config) -> Changes:
    """An index, by pattern and field."""
    check_collections(operation.pattern)
    check_field(operation.field)
    return {}


def check_new_index(operation: IndexDocuments, config: Config) -> Changes:
    """An index that is to be made."""
    if is_system(operation.pattern):
        raise InvalidName(f"a system collection has no index: its rows are kept nowhere; got {operation.pattern!r:.80}")
    return check_index(operation, config)


def check_collections(pattern: str) -> str:
    """The pattern itself when it is one: a collection's name in which `*` stands for any text, slashes too."""
    if not _pattern.fullmatch(pattern):
        shown = repr(pattern)[:80]
        raise InvalidName(f"a pattern of collections has 1 to 200 characters of A-Z a-z 0-9 . _ : / - *; got {shown}")
    return pattern


def check_rules(operation: SetDocumentRules, config: Config) -> Changes:
    """Access rules. One that cannot be read is refused when it is given, not when somebody asks."""
    rules = check_list("rules", operation.rules)
    if len(rules) > RULES_MAX:
        raise TooLarge(f"a database has up to {RULES_MAX:,} access rules; got {len(rules):,}")
    for rule in rules:
        if not isinstance(rule, DocumentRule):
            raise InvalidOption(f"an access rule has a pattern and conditions; got {rule!r:.80}")
        check_collections(rule.pattern)
        for action in ACTIONS:
            _check_rule(rule.pattern, action, getattr(rule, action))
    return {}


def as_rules(given: object) -> tuple[DocumentRule, ...]:
    """Access rules as people hand them in: `DocumentRule`, or mappings with the same names, as in a file of rules."""
    return tuple(map(_as_rule, check_list("rules", given)))


def _as_rule(given: object) -> DocumentRule:
    try:
        return given if isinstance(given, DocumentRule) else msgspec.convert(given, DocumentRule)
    except msgspec.ValidationError as error:
        raise InvalidOption(
            f"an access rule has a pattern, and conditions for {', '.join(ACTIONS)}: {error}; got {given!r:.80}"
        ) from error


def _check_rule(pattern: str, action: str, condition: str) -> None:
    try:
        if condition:
            filters.parse(condition)
    except InvalidFilter as error:
        raise InvalidFilter(f"rule for {pattern}, {action}: {error}", error.position) from error


def check_field(name: object) -> str:
    """The name of a field itself when it is one."""
    if not isinstance(name, str) or len(name) > FIELD_LENGTH_MAX or not _field.fullmatch(name):
        raise InvalidName(f"a field is named by its name, with dots into objects; got {name!r:.80}")
    return name


def check_conditions(conditions: object) -> tuple[Condition, ...]:
    """Conditions as they are handed in; raises when they mean nothing."""
    found = as_conditions(conditions)
    filters.parse_conditions(found)
    return found


def as_conditions(conditions: object) -> tuple[Condition, ...]:
    """The same, not checked yet: `Condition`, `{field, op, value}` or a tuple of the three."""
    return tuple(map(_condition, check_list("conditions", conditions)))


def _condition(given: object) -> Condition:
    if isinstance(given, Condition):
        return given
    if isinstance(given, Mapping) and given.keys() == {"field", "op", "value"}:
        return Condition(given["field"], given["op"], given["value"])
    if isinstance(given, tuple | list) and len(given) == 3:
        return Condition(*given)
    raise InvalidOption(f'a condition is ("field", "op", value) or {{field, op, value}}; got {given!r:.80}')


def check_query(query: DocumentQuery, *, one_more: bool = False) -> DocumentQuery:
    """A query as it may be asked; with `one_more` document by whoever wants to know whether there are more."""
    check_collection(query.collection)
    if query.filter:
        filters.parse(query.filter)
    if len(query.order_by) > ORDER_FIELDS_MAX:
        raise InvalidOption(f"a query orders by {ORDER_FIELDS_MAX} fields at most; got {len(query.order_by)}")
    for by in query.order_by:
        check_field(by.field)
    limit = check_limit(query.limit, QUERY_LIMIT_MAX + one_more)
    return msgspec.structs.replace(query, filters=check_conditions(query.filters), limit=limit)


def orders_of(given: Sequence[OrderBy | str] | str) -> tuple[OrderBy, ...]:
    """What people write: a field, `-field` for the other direction, or a list of them."""
    fields = [given] if isinstance(given, str) else check_list("order_by", given)
    found = []
    for one in fields:
        if isinstance(one, OrderBy):
            found.append(one)
        elif isinstance(one, str) and one:
            found.append(OrderBy(one.removeprefix("-"), "desc" if one.startswith("-") else "asc"))
        else:
            raise InvalidOption(f'order by "field" or "-field"; got {one!r:.80}')
    return tuple(found)


CHECKS: dict[type[Operation], Callable[[Any, Config], Changes]] = {
    CreateDocument: check_new,
    SetDocument: check_set,
    UpdateDocument: check_update,
    DeleteDocument: check_delete,
    MergeDocuments: check_merge,
    IndexDocuments: check_new_index,
    DropDocumentIndex: check_index,
    SetDocumentRules: check_rules,
}
