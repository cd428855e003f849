-- A job's origin stands with the event it was stored with; a job that outlives its event, or was made of it later, has it itself.
ALTER TABLE spec ADD COLUMN arrival INTEGER;
