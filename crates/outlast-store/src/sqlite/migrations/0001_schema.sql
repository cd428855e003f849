-- checksum is the CRC-32C of a row; checksum.rs says what it covers. A row without one passes its check.

-- What the store knows about itself. Integers only, one row per name.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL,
    checksum INTEGER
);

CREATE TABLE namespace (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    checksum INTEGER
);

-- settings is the JSON of every setting, as the API shows it. gcra is when the rate limit is unused again, in
-- microseconds since 1970. secrets are sealed.
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
    hold_cause INTEGER NOT NULL DEFAULT 0,
    hold_round INTEGER NOT NULL DEFAULT 0,
    gcra INTEGER NOT NULL DEFAULT 0,
    secrets BLOB,
    checksum INTEGER,
    gate_checksum INTEGER,
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
    replays          INTEGER NOT NULL CHECK (replays >= 0),
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
    worker       TEXT,
    work BLOB,
    checksum INTEGER
);

-- Lists of one queue, and walks over it.
CREATE INDEX job_queue ON job (queue, seq);

-- Dead letters.
CREATE INDEX job_dead_letter ON job (queue, seq) WHERE status = 4;
CREATE INDEX job_failed_at ON job (queue, state_at, seq) WHERE status = 4;

-- What was asked for: written once. inbound_event is the event that the job was made of; origin is a copy of its source and headers
-- for jobs that outlive the event.
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
    overrides       TEXT,
    origin          TEXT,
    inbound_event   INTEGER,
    checksum INTEGER
);

-- Only for jobs that have tags or a key; label is namespace, name and value in one.
CREATE TABLE label (
    label TEXT NOT NULL,
    seq   INTEGER NOT NULL
);
CREATE UNIQUE INDEX label_seq ON label (label, seq);

-- Events that no longer fit into the hot row, in chunks.
CREATE TABLE history (
    job    INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    events BLOB NOT NULL,
    checksum INTEGER
);
CREATE UNIQUE INDEX history_job ON history (job, first);

-- Inline results.
CREATE TABLE result (
    seq  INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    downloads INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER
);

-- The checkpoint that the next attempt resumes from: JSON, or the key of an object.
CREATE TABLE checkpoint (
    seq            INTEGER PRIMARY KEY,
    schema_version INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    replays            INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    data           TEXT,
    object         TEXT,
    checksum INTEGER
);

-- Finished parts of a job's work.
CREATE TABLE section (
    job  INTEGER NOT NULL,
    name TEXT NOT NULL,
    at   INTEGER NOT NULL,
    body TEXT NOT NULL,
    checksum INTEGER
);
CREATE UNIQUE INDEX section_name ON section (job, name);

-- Objects of the object store: expected, attached to the job, or to be deleted after delete_after. A row is inserted before
-- the first byte is written and deleted after the object is.
CREATE TABLE object (
    key          TEXT PRIMARY KEY,
    job          INTEGER NOT NULL,
    role         INTEGER NOT NULL,
    attached         INTEGER NOT NULL,
    delete_after    INTEGER,
    length       INTEGER NOT NULL,
    sha256       BLOB NOT NULL CHECK (length(sha256) = 32),
    content_type TEXT,
    filename     TEXT,
    upload       TEXT,
    downloads    INTEGER NOT NULL DEFAULT 0,
    parts        INTEGER NOT NULL DEFAULT 0,
    copied_from  INTEGER,
    checksums    BLOB,
    damaged_at   INTEGER,
    checksum INTEGER
);
CREATE INDEX object_job ON object (job);
CREATE INDEX object_delete_after ON object (delete_after) WHERE delete_after IS NOT NULL;

-- Events that providers send. A number belongs to a job or to an inbound event, never to both.
CREATE TABLE inbound_event (
    seq       INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    source    TEXT NOT NULL,
    kind      TEXT NOT NULL,
    key       TEXT,
    headers   TEXT,
    -- NULL where a job has the same text as its payload; body_of is that job.
    body      TEXT,
    body_of   INTEGER,
    jobs      INTEGER NOT NULL,
    checksum INTEGER,
    body_checksum INTEGER
);
-- Ids of providers by hash. The newest are not in here yet: they come in no order, so they are written many at a time.
CREATE TABLE inbound_event_key (
    hash INTEGER NOT NULL,
    seq  INTEGER NOT NULL,
    PRIMARY KEY (hash, seq)
) WITHOUT ROWID;

CREATE TABLE api_key (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  INTEGER NOT NULL,
    name       TEXT NOT NULL,
    prefix     TEXT NOT NULL UNIQUE,
    hash       BLOB NOT NULL CHECK (length(hash) = 32),
    scopes     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    checksum INTEGER
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
    finished_at     INTEGER,
    skipped         INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER
);
CREATE INDEX operation_open ON operation (id) WHERE status = 'running';
