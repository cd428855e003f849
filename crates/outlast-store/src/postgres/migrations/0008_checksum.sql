-- Checksums of rows. NULL: written before there were any, not checked until the row is written again. That of a job's state
-- stands in the state.
ALTER TABLE job ADD COLUMN payload_checksum integer;
ALTER TABLE queue ADD COLUMN checksum integer;
ALTER TABLE api_key ADD COLUMN checksum integer;
ALTER TABLE result ADD COLUMN checksum integer;
ALTER TABLE history ADD COLUMN checksum integer;
ALTER TABLE checkpoint ADD COLUMN checksum integer;
ALTER TABLE section ADD COLUMN checksum integer;
ALTER TABLE object ADD COLUMN checksum integer;
ALTER TABLE arrival ADD COLUMN checksum integer;
ALTER TABLE arrival ADD COLUMN body_checksum integer;
