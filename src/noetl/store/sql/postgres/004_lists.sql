-- Lists of executions by parent and by time, keys under which executions were asked for, and what is kept for
-- an execution found by its id.

CREATE INDEX execution_by_parent ON noetl.execution (parent_execution_id, number)
WHERE parent_execution_id IS NOT NULL;
CREATE INDEX execution_by_time ON noetl.execution (requested_at, number);

-- The execution that a key stands for. The row comes before the execution does, so that whoever repeats a request
-- asks for the same one.
CREATE TABLE noetl.start_key (
    start_key TEXT COLLATE "C" PRIMARY KEY,
    execution_id BIGINT NOT NULL,
    asked_at DOUBLE PRECISION NOT NULL
);

CREATE INDEX start_key_by_time ON noetl.start_key (asked_at);

CREATE INDEX auth_cache_by_execution ON noetl.auth_cache (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX auth_cache_by_parent ON noetl.auth_cache (parent_execution_id) WHERE parent_execution_id IS NOT NULL;
