-- Dead letters in the order of their failure.
CREATE INDEX job_failed ON job (queue, state_at, seq) WHERE status = 4;
