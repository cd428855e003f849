-- Jobs that a bulk replay passed over because another job has their idempotency key.
ALTER TABLE operation ADD COLUMN skipped bigint NOT NULL DEFAULT 0;
