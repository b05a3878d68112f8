-- Which store this is, wherever its file lies: a random UUID, made once. Checkpoints elsewhere carry it.
INSERT INTO hw_meta (key, value)
VALUES ('identity', lower(
    hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
    || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))));
