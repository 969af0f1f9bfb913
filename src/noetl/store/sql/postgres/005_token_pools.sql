-- The pools whose work the holder of a worker's token may take, with commas between them; empty: any.
ALTER TABLE noetl.token ADD COLUMN pools TEXT NOT NULL DEFAULT '';
