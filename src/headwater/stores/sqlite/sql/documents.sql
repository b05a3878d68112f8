-- name: find_document
-- One document, or its tombstone.
SELECT version, deleted, body, lsn FROM hw_documents WHERE database = ? AND collection = ? AND id = ?;

-- name: put_document
-- A document as it was just written.
INSERT INTO hw_documents (database, collection, id, version, deleted, body, lsn) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (database, collection, id) DO UPDATE
SET version = excluded.version, deleted = excluded.deleted, body = excluded.body, lsn = excluded.lsn;

-- name: documents_by_id
-- Documents of a collection from an id on, tombstones too.
SELECT id, version, deleted, body, lsn FROM hw_documents
WHERE database = ? AND collection = ? AND id > ? ORDER BY id LIMIT ?;

-- name: documents_by_id_back
-- The same from an id back to the first.
SELECT id, version, deleted, body, lsn FROM hw_documents
WHERE database = ? AND collection = ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: documents_after_commit
-- Documents of a collection in the order of the commits that wrote them.
SELECT id, version, deleted, body, lsn FROM hw_documents
WHERE database = ?1 AND collection = ?2 AND (lsn, id) > (?3, ?4) ORDER BY lsn, id LIMIT ?5;

-- name: documents_with_key
-- Documents with one key of an index, after an id.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k CROSS JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = ? AND k.collection = ? AND k.field = ? AND k.key = ? AND k.id > ? ORDER BY k.id LIMIT ?;

-- name: documents_from_key
-- Documents in the order of an index, from a key to before another.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k CROSS JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = ? AND k.collection = ? AND k.field = ? AND k.key >= ? AND k.key < ? ORDER BY k.key, k.id LIMIT ?;

-- name: documents_with_key_back
-- Documents with one key of an index, before an id, the last first.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k CROSS JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = ? AND k.collection = ? AND k.field = ? AND k.key = ? AND k.id < ? ORDER BY k.id DESC LIMIT ?;

-- name: documents_from_key_back
-- Documents against the order of an index, from before a key down to another.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k CROSS JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = ? AND k.collection = ? AND k.field = ? AND k.key >= ? AND k.key < ?
ORDER BY k.key DESC, k.id DESC LIMIT ?;

-- name: document_indexes
-- The indexes of a database.
SELECT pattern, field, ready, done_collection, done_id FROM hw_document_indexes WHERE database = ?
ORDER BY pattern, field;

-- name: unfinished_document_indexes
-- Indexes that not all documents are in yet.
SELECT database, pattern, field FROM hw_document_indexes WHERE ready = 0 ORDER BY database, pattern, field;

-- name: put_document_index
-- An index, new or further on.
INSERT INTO hw_document_indexes (database, pattern, field, ready, done_collection, done_id) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (database, pattern, field) DO UPDATE
SET ready = excluded.ready, done_collection = excluded.done_collection, done_id = excluded.done_id;

-- name: drop_document_index
-- Forget an index.
DELETE FROM hw_document_indexes WHERE database = ? AND pattern = ? AND field = ?;

-- name: documents_to_index
-- Documents of a database from a place on, by collection and id.
SELECT collection, id, deleted, body FROM hw_documents
WHERE database = ?1 AND (collection, id) > (?2, ?3) ORDER BY collection, id LIMIT ?4;

-- name: add_document_key
-- A value of an indexed field.
INSERT INTO hw_document_keys (database, collection, field, key, id) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: drop_document_key
-- A value that a document has no more.
DELETE FROM hw_document_keys WHERE database = ? AND collection = ? AND field = ? AND key = ? AND id = ?;

-- name: drop_field_keys
-- All values of a field in one collection.
DELETE FROM hw_document_keys WHERE database = ? AND collection = ? AND field = ?;

-- name: next_keyed_collection
-- The first collection after another that has keys of any field.
SELECT collection FROM hw_document_keys WHERE database = ? AND collection > ? ORDER BY collection LIMIT 1;
