-- Lists of executions by parent and by time, keys under which executions were asked for, and what is kept for
-- an execution found by its id.

CREATE INDEX execution_by_parent ON execution (parent_execution_id, number) WHERE parent_execution_id IS NOT NULL;
CREATE INDEX execution_by_time ON execution (requested_at, number);

-- The execution that a key stands for. The row comes before the execution does, so that whoever repeats a request
-- asks for the same one.
CREATE TABLE start_key (
    start_key TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL,
    asked_at REAL NOT NULL
) WITHOUT ROWID;

CREATE INDEX start_key_by_time ON start_key (asked_at);

CREATE INDEX auth_cache_by_execution ON auth_cache (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX auth_cache_by_parent ON auth_cache (parent_execution_id) WHERE parent_execution_id IS NOT NULL;
