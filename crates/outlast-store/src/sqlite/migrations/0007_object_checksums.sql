-- Of an upload in parts: how many were announced. Of a copy: the number of the upload it was made of. Checksums of the chunks
-- of an object, and when its bytes were last found to differ from what was written.
ALTER TABLE object ADD COLUMN parts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE object ADD COLUMN copied_from INTEGER;
ALTER TABLE object ADD COLUMN checksums BLOB;
ALTER TABLE object ADD COLUMN damaged_at INTEGER;
