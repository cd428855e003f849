-- What attempts leave behind: packed headway beside the job, its checkpoint, finished sections, and objects of the object
-- store. Every object is here before its first byte is written.
ALTER TABLE job ADD COLUMN work BLOB;
ALTER TABLE result ADD COLUMN downloads INTEGER NOT NULL DEFAULT 0;
CREATE TABLE checkpoint (
    seq            INTEGER PRIMARY KEY,
    schema_version INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    run            INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    data           TEXT,
    object         TEXT
);
CREATE TABLE section (
    job  INTEGER NOT NULL,
    name TEXT NOT NULL,
    at   INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX section_name ON section (job, name);
CREATE TABLE object (
    key          TEXT PRIMARY KEY,
    job          INTEGER NOT NULL,
    role         INTEGER NOT NULL,
    kept         INTEGER NOT NULL,
    doomed_at    INTEGER,
    length       INTEGER NOT NULL,
    sha256       BLOB NOT NULL CHECK (length(sha256) = 32),
    content_type TEXT,
    filename     TEXT,
    upload       TEXT,
    downloads    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX object_job ON object (job);
CREATE INDEX object_doomed ON object (doomed_at) WHERE doomed_at IS NOT NULL;
