-- How a hold came about and how often in a row, how far the rate limit is used (microseconds since 1970), and the sealed
-- signing secrets.
ALTER TABLE queue ADD COLUMN hold_cause INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN hold_round INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN pace INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN secrets BLOB;
