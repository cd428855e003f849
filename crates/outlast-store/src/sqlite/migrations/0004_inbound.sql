-- Events that providers send, each with the jobs that came of it in one transaction; and where a job came from.
CREATE TABLE arrival (
    seq       INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    source    TEXT NOT NULL,
    kind      TEXT NOT NULL,
    key       TEXT,
    headers   TEXT,
    -- Where a job has the same text as its payload, it stands there.
    body      TEXT,
    body_of   INTEGER,
    jobs      INTEGER NOT NULL
);
CREATE UNIQUE INDEX arrival_key ON arrival (namespace, source, key) WHERE key IS NOT NULL;
ALTER TABLE spec ADD COLUMN origin TEXT;
