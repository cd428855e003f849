-- Events that providers send, each with the jobs that came of it in one transaction. Text that a provider chose is bytes:
-- text of PostgreSQL cannot hold every character.
CREATE TABLE arrival (
    seq       bigint PRIMARY KEY,
    namespace integer NOT NULL,
    at        bigint NOT NULL,
    source    text COLLATE "C" NOT NULL,
    kind      bytea NOT NULL,
    key       bytea,
    headers   text,
    body      text NOT NULL,
    jobs      integer NOT NULL
);
CREATE UNIQUE INDEX arrival_key ON arrival (namespace, source, key) WHERE key IS NOT NULL;
