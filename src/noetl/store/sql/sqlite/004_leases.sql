-- A row of the queue is free, leased to a worker (`worker_id`, until `lease_until` by the system's clock, for the
-- `epoch`th time), or held: nobody may claim it.
ALTER TABLE command ADD COLUMN worker_id TEXT;
ALTER TABLE command ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE command ADD COLUMN lease_until REAL;
ALTER TABLE command ADD COLUMN is_held INTEGER NOT NULL DEFAULT 0;

-- Rows that are appended leased, as most are, never enter it.
CREATE INDEX command_free ON command (pool, created_at) WHERE worker_id IS NULL AND is_held = 0;

CREATE INDEX execution_open_children ON execution (parent_execution_id)
WHERE parent_execution_id IS NOT NULL AND finished_at IS NULL;
