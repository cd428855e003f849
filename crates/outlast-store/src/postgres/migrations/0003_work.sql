-- What attempts leave behind: a job's checkpoint, finished sections, and objects of the object store. Every object is here
-- before its first byte is written.
ALTER TABLE result
    ADD COLUMN downloads bigint NOT NULL DEFAULT 0;
CREATE TABLE checkpoint (
    seq            bigint PRIMARY KEY,
    schema_version bigint NOT NULL,
    at             bigint NOT NULL,
    run            integer NOT NULL,
    attempt        integer NOT NULL,
    data           text,
    object         text
);
CREATE TABLE section (
    job  bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    at   bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (job, name)
);
CREATE TABLE object (
    key          text COLLATE "C" PRIMARY KEY,
    job          bigint NOT NULL,
    role         smallint NOT NULL,
    kept         boolean NOT NULL,
    doomed_at    bigint,
    length       bigint NOT NULL,
    sha256       bytea NOT NULL CHECK (length(sha256) = 32),
    content_type text,
    filename     text,
    upload       text,
    downloads    bigint NOT NULL DEFAULT 0
);
CREATE INDEX object_job ON object (job);
CREATE INDEX object_doomed ON object (doomed_at) WHERE doomed_at IS NOT NULL;
