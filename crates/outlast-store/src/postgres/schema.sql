-- checksum is the CRC-32C of a row; checksum.rs says what it covers. A row without one passes its check.

-- What the store knows about itself. Integers only, one row per name.
CREATE TABLE meta (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);

-- Unlogged: a crash of the database empties it, and nothing else does. A node that misses its row knows of the crash.
CREATE UNLOGGED TABLE crash_epoch (
    id    bigint PRIMARY KEY,
    since timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE namespace (
    id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- settings is the JSON of every setting, as the API shows it. hold_probe is the id of a job. gcra is when the rate limit
-- is unused again, in microseconds since 1970. secrets are sealed.
CREATE TABLE queue (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace  integer NOT NULL,
    name       text COLLATE "C" NOT NULL,
    settings   text NOT NULL,
    paused     boolean NOT NULL,
    hold_until bigint,
    hold_probe bytea CHECK (length(hold_probe) = 16),
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    hold_cause smallint NOT NULL DEFAULT 0,
    hold_round integer NOT NULL DEFAULT 0,
    gcra       bigint NOT NULL DEFAULT 0,
    secrets    bytea,
    checksum integer,
    UNIQUE (namespace, name)
) WITH (fillfactor = 50);

-- The order of publishing; also the number inside a job's id.
CREATE SEQUENCE job_seq;

-- The hot row. No column that changes is indexed, so every change is written on the row's own page without
-- touching an index; the fillfactor leaves room for it. Times are milliseconds since 1970. status is the index in
-- pending, queued, running, succeeded, failed, cancelled, expired, from 0. state is everything else that changes, packed.
-- spec is the JSON of what was asked for besides payload and priority, NULL when nothing was. A long payload moves out of
-- the row, so that changes do not copy it.
CREATE TABLE job (
    seq        bigint PRIMARY KEY,
    created_at bigint NOT NULL,
    queue      integer NOT NULL,
    status     smallint NOT NULL CHECK (status BETWEEN 0 AND 6),
    state      bytea NOT NULL,
    spec       text,
    payload    text NOT NULL,
    payload_checksum integer
) WITH (
    fillfactor = 60, toast_tuple_target = 1024, autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- Lists of one queue, and walks over it.
CREATE INDEX job_queue ON job (queue, seq);

-- Two ordered lists in one index. Rows of a queue: its queued jobs in claim order; place is 100 - priority, at is when the
-- job became eligible. Rows of queue 0: the one alarm of each job that has one; at is when it is due. Claims and the sweep
-- read only this table, so they stay fast however many jobs there are.
CREATE TABLE ready_and_alarm (
    queue integer NOT NULL,
    place smallint NOT NULL,
    at    bigint NOT NULL,
    seq   bigint NOT NULL,
    PRIMARY KEY (queue, place, at, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Dead letters.
CREATE TABLE dead_letter (
    queue integer NOT NULL,
    seq   bigint NOT NULL,
    failed_at bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, seq)
);
CREATE INDEX dead_letter_failed_at ON dead_letter (queue, failed_at, seq);

-- Idempotency keys: the jobs that were made with a key, oldest first. Racing publishers of one key wait for its row. hash
-- covers the queue and the key; the key itself is in job.spec and is compared.
CREATE TABLE dedupe (
    hash bigint PRIMARY KEY,
    seqs bigint[] NOT NULL
);

-- Only for jobs that have tags or a key. label is a hash; the name and value in job.spec are compared.
CREATE TABLE label (
    label bigint NOT NULL,
    seq   bigint NOT NULL,
    PRIMARY KEY (label, seq)
);

-- Events that no longer fit into the hot row, in chunks.
CREATE TABLE history (
    job    bigint NOT NULL,
    first  bigint NOT NULL,
    events bytea NOT NULL,
    checksum integer,
    PRIMARY KEY (job, first)
);

-- Inline results.
CREATE TABLE result (
    seq       bigint PRIMARY KEY,
    body      text NOT NULL,
    downloads bigint NOT NULL DEFAULT 0,
    checksum integer
);

-- The checkpoint that the next attempt resumes from: JSON, or the key of an object.
CREATE TABLE checkpoint (
    seq            bigint PRIMARY KEY,
    schema_version bigint NOT NULL,
    at             bigint NOT NULL,
    replays            integer NOT NULL,
    attempt        integer NOT NULL,
    data           text,
    object         text,
    checksum integer
);

-- Finished parts of a job's work.
CREATE TABLE section (
    job  bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    at   bigint NOT NULL,
    body text NOT NULL,
    checksum integer,
    PRIMARY KEY (job, name)
);

-- Objects of the object store: expected, attached to the job, or to be deleted after delete_after. A row is inserted before
-- the first byte is written and deleted after the object is.
CREATE TABLE object (
    key          text COLLATE "C" PRIMARY KEY,
    job          bigint NOT NULL,
    role         smallint NOT NULL,
    attached         boolean NOT NULL,
    delete_after    bigint,
    length       bigint NOT NULL,
    sha256       bytea NOT NULL CHECK (length(sha256) = 32),
    content_type text,
    filename     text,
    upload       text,
    downloads    bigint NOT NULL DEFAULT 0,
    parts        integer NOT NULL DEFAULT 0,
    copied_from  bigint,
    checksums    bytea,
    damaged_at   bigint,
    checksum integer
);
CREATE INDEX object_job ON object (job);
CREATE INDEX object_delete_after ON object (delete_after) WHERE delete_after IS NOT NULL;

-- Jobs per queue and status, spread over slots, so that transactions of one queue do not wait for each other. A count is
-- the sum over the slots.
CREATE TABLE queue_count (
    queue     integer NOT NULL,
    slot      smallint NOT NULL,
    pending   bigint NOT NULL,
    queued    bigint NOT NULL,
    running   bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed    bigint NOT NULL,
    cancelled bigint NOT NULL,
    expired   bigint NOT NULL,
    PRIMARY KEY (queue, slot)
) WITH (fillfactor = 20);

-- Events that providers send. A number belongs to a job or to an inbound event, never to both.
CREATE TABLE inbound_event (
    seq       bigint PRIMARY KEY,
    namespace integer NOT NULL,
    at        bigint NOT NULL,
    source    text COLLATE "C" NOT NULL,
    kind      bytea NOT NULL,
    key       bytea,
    headers   text,
    body      text NOT NULL,
    jobs      integer NOT NULL,
    checksum integer,
    body_checksum integer
);
CREATE UNIQUE INDEX inbound_event_key ON inbound_event (namespace, source, key) WHERE key IS NOT NULL;

CREATE TABLE api_key (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace  integer NOT NULL,
    name       bytea NOT NULL,
    prefix     text NOT NULL UNIQUE,
    hash       bytea NOT NULL CHECK (length(hash) = 32),
    scopes     text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    checksum integer
);

CREATE TABLE operation (
    id              integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace       integer NOT NULL,
    queue           integer NOT NULL,
    queue_name      text NOT NULL,
    kind            text NOT NULL,
    filter          text NOT NULL,
    take            bigint,
    rate_per_second bigint,
    status          text NOT NULL,
    position        bigint NOT NULL,
    processed       bigint NOT NULL,
    created_at      bigint NOT NULL,
    finished_at     bigint,
    skipped         bigint NOT NULL DEFAULT 0
);
CREATE INDEX operation_open ON operation (id) WHERE status = 'running';
