-- How a hold came about and how often in a row, how far the rate limit is used (microseconds since 1970), and the sealed
-- signing secrets.
ALTER TABLE queue
    ADD COLUMN hold_cause smallint NOT NULL DEFAULT 0,
    ADD COLUMN hold_round integer NOT NULL DEFAULT 0,
    ADD COLUMN pace bigint NOT NULL DEFAULT 0,
    ADD COLUMN secrets bytea;
