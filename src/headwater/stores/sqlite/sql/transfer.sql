-- name: all_rows
-- All rows of a table: the names of the table and of its columns are put in.
SELECT key FROM hw_meta;

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
