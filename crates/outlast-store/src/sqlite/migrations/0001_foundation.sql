-- What the store knows about itself. Integers only, one row per name.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);

CREATE TABLE namespace (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

-- settings is the JSON of every setting, as the API shows it.
CREATE TABLE queue (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  INTEGER NOT NULL,
    name       TEXT NOT NULL,
    settings   TEXT NOT NULL,
    paused     INTEGER NOT NULL,
    hold_until INTEGER,
    hold_probe INTEGER,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (namespace, name)
);

-- The hot row: small, overwritten in place, mostly integers. Times are milliseconds since 1970.
-- NULL in opened_at and queued_at means "as created_at". detail says which reason, phase or cause within the status.
CREATE TABLE job (
    seq          INTEGER PRIMARY KEY,
    queue        INTEGER NOT NULL,
    status       INTEGER NOT NULL CHECK (status BETWEEN 0 AND 6),
    detail       INTEGER NOT NULL,
    priority     INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    created_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL CHECK (version >= 1),
    run          INTEGER NOT NULL CHECK (run >= 1),
    attempt      INTEGER NOT NULL CHECK (attempt >= 1),
    epoch        INTEGER NOT NULL,
    deferrals    INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    history      BLOB NOT NULL,
    state_at     INTEGER,
    wake_at      INTEGER,
    key_hash     INTEGER,
    opened_at    INTEGER,
    queued_at    INTEGER,
    started_at   INTEGER,
    lease        BLOB,
    last_how     INTEGER,
    expires_at   INTEGER,
    extension    INTEGER,
    heartbeat_at INTEGER,
    revoke_at    INTEGER,
    result       INTEGER,
    last_error   TEXT,
    worker       TEXT
);

-- Lists of one queue, and walks over it.
CREATE INDEX job_queue ON job (queue, seq);

-- Dead letters.
CREATE INDEX job_dead ON job (queue, seq) WHERE status = 4;

-- What was asked for: written once.
CREATE TABLE spec (
    seq             INTEGER PRIMARY KEY,
    payload         TEXT NOT NULL,
    idempotency_key TEXT,
    key             TEXT,
    tags            TEXT,
    not_before      INTEGER,
    start_by        INTEGER,
    callback_url    TEXT,
    notify_email    TEXT,
    traceparent     TEXT,
    overrides       TEXT
);

-- Only for jobs that have tags or a key; label is namespace, name and value in one.
CREATE TABLE label (
    label TEXT NOT NULL,
    seq   INTEGER NOT NULL
);
CREATE UNIQUE INDEX label_seq ON label (label, seq);

-- Events that no longer fit into the hot row, in runs.
CREATE TABLE history (
    job    INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    events BLOB NOT NULL
);
CREATE UNIQUE INDEX history_job ON history (job, first);

-- Inline results.
CREATE TABLE result (
    seq  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);

CREATE TABLE api_key (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  INTEGER NOT NULL,
    name       TEXT NOT NULL,
    prefix     TEXT NOT NULL UNIQUE,
    hash       BLOB NOT NULL CHECK (length(hash) = 32),
    scopes     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
);

CREATE TABLE operation (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace       INTEGER NOT NULL,
    queue           INTEGER NOT NULL,
    queue_name      TEXT NOT NULL,
    kind            TEXT NOT NULL,
    filter          TEXT NOT NULL,
    take            INTEGER,
    rate_per_second INTEGER,
    status          TEXT NOT NULL,
    position        INTEGER NOT NULL,
    processed       INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    finished_at     INTEGER
);
CREATE INDEX operation_open ON operation (id) WHERE status = 'running';
