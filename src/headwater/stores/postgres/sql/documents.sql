-- name: find_document
-- One document, or its tombstone.
SELECT version, deleted, body, lsn FROM hw_documents WHERE database = $1 AND collection = $2 AND id = $3;

-- name: put_document
-- A document as it was just written.
INSERT INTO hw_documents (database, collection, id, version, deleted, body, lsn) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (database, collection, id) DO UPDATE
SET version = excluded.version, deleted = excluded.deleted, body = excluded.body, lsn = excluded.lsn;

-- name: documents_by_id
-- Documents of a collection from an id on, tombstones too.
SELECT id, version, deleted, body, lsn FROM hw_documents
WHERE database = $1 AND collection = $2 AND id > $3 ORDER BY id LIMIT $4;

-- name: documents_by_id_back
-- The same from an id back to the first.
SELECT id, version, deleted, body, lsn FROM hw_documents
WHERE database = $1 AND collection = $2 AND id < $3 ORDER BY id DESC LIMIT $4;

-- name: documents_after_commit
-- Documents of a collection in the order of the commits that wrote them.
SELECT id, version, deleted, body, lsn FROM hw_documents
WHERE database = $1 AND collection = $2 AND (lsn, id) > ($3, $4) ORDER BY lsn, id LIMIT $5;

-- name: documents_with_key
-- Documents with one key of an index, after an id.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = $1 AND k.collection = $2 AND k.field = $3 AND k.key = $4 AND k.id > $5 ORDER BY k.id LIMIT $6;

-- name: documents_from_key
-- Documents in the order of an index, from a key to before another.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = $1 AND k.collection = $2 AND k.field = $3 AND k.key >= $4 AND k.key < $5 ORDER BY k.key, k.id LIMIT $6;

-- name: documents_with_key_back
-- Documents with one key of an index, before an id, the last first.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = $1 AND k.collection = $2 AND k.field = $3 AND k.key = $4 AND k.id < $5 ORDER BY k.id DESC LIMIT $6;

-- name: documents_from_key_back
-- Documents against the order of an index, from before a key down to another.
SELECT d.id, d.version, d.deleted, d.body, d.lsn, k.key
FROM hw_document_keys k JOIN hw_documents d ON d.database = k.database AND d.collection = k.collection AND d.id = k.id
WHERE k.database = $1 AND k.collection = $2 AND k.field = $3 AND k.key >= $4 AND k.key < $5
ORDER BY k.key DESC, k.id DESC LIMIT $6;

-- name: document_indexes
-- The indexes of a database.
SELECT pattern, field, ready, done_collection, done_id FROM hw_document_indexes WHERE database = $1
ORDER BY pattern, field;

-- name: unfinished_document_indexes
-- Indexes that not all documents are in yet.
SELECT database, pattern, field FROM hw_document_indexes WHERE ready = 0 ORDER BY database, pattern, field;

-- name: put_document_index
-- An index, new or further on.
INSERT INTO hw_document_indexes (database, pattern, field, ready, done_collection, done_id) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (database, pattern, field) DO UPDATE
SET ready = excluded.ready, done_collection = excluded.done_collection, done_id = excluded.done_id;

-- name: drop_document_index
-- Forget an index.
DELETE FROM hw_document_indexes WHERE database = $1 AND pattern = $2 AND field = $3;

-- name: documents_to_index
-- Documents of a database from a place on, by collection and id.
SELECT collection, id, deleted, body FROM hw_documents
WHERE database = $1 AND (collection, id) > ($2, $3) ORDER BY collection, id LIMIT $4;

-- name: add_document_key
-- A value of an indexed field.
INSERT INTO hw_document_keys (database, collection, field, key, id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING;

-- name: drop_document_key
-- A value that a document has no more.
DELETE FROM hw_document_keys WHERE database = $1 AND collection = $2 AND field = $3 AND key = $4 AND id = $5;

-- name: drop_field_keys
-- All values of a field in one collection.
DELETE FROM hw_document_keys WHERE database = $1 AND collection = $2 AND field = $3;

-- name: next_keyed_collection
-- The first collection after another that has keys of any field.
SELECT collection FROM hw_document_keys WHERE database = $1 AND collection > $2 ORDER BY collection LIMIT 1;
