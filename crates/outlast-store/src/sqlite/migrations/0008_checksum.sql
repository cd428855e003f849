-- Checksums of rows. NULL: written before there were any, not checked until the row is written again.
ALTER TABLE meta ADD COLUMN checksum INTEGER;
ALTER TABLE namespace ADD COLUMN checksum INTEGER;
ALTER TABLE queue ADD COLUMN checksum INTEGER;
ALTER TABLE queue ADD COLUMN gate_checksum INTEGER;
ALTER TABLE api_key ADD COLUMN checksum INTEGER;
ALTER TABLE operation ADD COLUMN checksum INTEGER;
ALTER TABLE job ADD COLUMN checksum INTEGER;
ALTER TABLE spec ADD COLUMN checksum INTEGER;
ALTER TABLE result ADD COLUMN checksum INTEGER;
ALTER TABLE history ADD COLUMN checksum INTEGER;
ALTER TABLE checkpoint ADD COLUMN checksum INTEGER;
ALTER TABLE section ADD COLUMN checksum INTEGER;
ALTER TABLE object ADD COLUMN checksum INTEGER;
ALTER TABLE arrival ADD COLUMN checksum INTEGER;
ALTER TABLE arrival ADD COLUMN body_checksum INTEGER;
