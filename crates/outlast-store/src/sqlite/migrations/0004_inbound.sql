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
-- Ids of providers by hash. The newest are not in here yet: they come in no order, so they are written many at a time.
CREATE TABLE arrival_key (
    hash INTEGER NOT NULL,
    seq  INTEGER NOT NULL,
    PRIMARY KEY (hash, seq)
) WITHOUT ROWID;
ALTER TABLE spec ADD COLUMN origin TEXT;
