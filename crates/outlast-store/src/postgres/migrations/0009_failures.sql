-- Dead letters in the order of their failure. Those from before count as the oldest.
ALTER TABLE dead ADD COLUMN failed_at bigint NOT NULL DEFAULT 0;
CREATE INDEX dead_failed ON dead (queue, failed_at, seq);
