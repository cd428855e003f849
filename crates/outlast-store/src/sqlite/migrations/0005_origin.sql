-- The event that a job came of has its origin; only a job that outlives it has it itself.
ALTER TABLE spec ADD COLUMN arrival INTEGER;
