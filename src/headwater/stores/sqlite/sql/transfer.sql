-- name: all_rows
-- All rows of a table in the order of their keys: the names of the table, of its columns and of its key are put in.
SELECT key FROM hw_meta ORDER BY value;

-- name: some_rows
-- Rows of a table by their numbers: names are put in.
SELECT key FROM hw_meta WHERE value IN (SELECT atom FROM json_each(?));

-- name: remove_row
-- A row of a table by its key: names are put in.
DELETE FROM hw_meta WHERE (value) = (?);

-- name: highest_number
-- The highest number of a row, a text where these are texts: the name of the table is put in.
SELECT max(value) FROM hw_meta;

-- name: list_unique
-- What tells rows of a table apart that have no key.
SELECT i.name FROM pragma_index_list(?) l, pragma_index_info(l.name) i WHERE l."unique" ORDER BY i.seqno;

-- name: sum_records
-- How many records the log has.
SELECT coalesce(sum(count), 0) FROM hw_segments;

-- name: count_rows
-- How many rows a table has: its name is put in.
SELECT count(*) FROM hw_meta;

-- name: add_row
-- One row of a table: the names of the table and of its columns are put in.
INSERT INTO hw_meta (key) VALUES (?);

-- name: all_meta
-- Every fact about the store.
SELECT key, value FROM hw_meta;

-- name: numbers_given
-- The highest number that a table has ever given to a row.
SELECT name, seq FROM sqlite_sequence;

-- name: forget_number_given
-- Where numbers of a table go on from is said anew.
DELETE FROM sqlite_sequence WHERE name = ?;

-- name: set_number_given
-- New rows of a table get numbers after this one.
INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?);
