-- The tables of executions. A migration that has been released is never edited; a later one follows it.
-- Ids of executions are numbers here and text everywhere else. Names are compared byte by byte (COLLATE "C"), as
-- other stores do. JSON is kept as BYTEA: nothing asks inside it, `jsonb` refuses NUL and changes numbers and key
-- order, and bytes come back as they were without being parsed or recoded on the way.

-- The projection of each execution, and how far its log goes (`last_seq`). `number` gives the order in which
-- executions came in. An append changes `last_seq` alone as a rule, which no index has: room is left on each page
-- so that the row stays on it.
CREATE TABLE noetl.execution (
    execution_id BIGINT PRIMARY KEY,
    number BIGINT GENERATED ALWAYS AS IDENTITY,
    last_seq BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    path TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    dialect TEXT NOT NULL,
    requested_at TEXT COLLATE "C" NOT NULL,
    finished_at TEXT COLLATE "C",
    parent_execution_id BIGINT,
    error BYTEA,
    playbook_digest TEXT NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

CREATE UNIQUE INDEX execution_by_number ON noetl.execution (number);
CREATE INDEX execution_by_status ON noetl.execution (status, number);
CREATE INDEX execution_by_path ON noetl.execution (path, number);
CREATE INDEX execution_open_children ON noetl.execution (parent_execution_id)
WHERE parent_execution_id IS NOT NULL AND finished_at IS NULL;

-- The log. `body` is the whole event as JSON, once; the columns beside it are what queries ask for.
-- `loop_run_id` and `loop_index` are set only on the end of an iteration of a step's own loop.
-- Ids of executions begin with the time they were made at, so ranges of them are ranges of time: each partition
-- has its own small indexes, and what is too old goes with its partition. Ids that are hashes (of children) lie
-- anywhere; the last partition catches what no other does.
CREATE TABLE noetl.event (
    execution_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    event_type TEXT NOT NULL,
    idem_key TEXT COLLATE "C",
    loop_run_id TEXT COLLATE "C",
    loop_index BIGINT,
    body BYTEA NOT NULL,
    PRIMARY KEY (execution_id, seq)
) PARTITION BY RANGE (execution_id);

CREATE UNIQUE INDEX event_by_key ON noetl.event (execution_id, idem_key) WHERE idem_key IS NOT NULL;
CREATE INDEX event_by_loop ON noetl.event (execution_id, loop_run_id, loop_index) WHERE loop_index IS NOT NULL;

CREATE TABLE noetl.event_other PARTITION OF noetl.event DEFAULT;

-- The queue: work that is not over yet. A row is free, leased to a worker (`worker_id`, until `lease_until` by the
-- clock of the database, for the `epoch`th time), or held: nobody may claim it. Rows come and go by thousands a
-- second: they are vacuumed by number and not by share, at full speed; and the end of the table is not given back,
-- which would lock it.
CREATE TABLE noetl.command (
    execution_id BIGINT NOT NULL,
    command_id TEXT COLLATE "C" NOT NULL,
    step TEXT NOT NULL,
    step_run_id TEXT NOT NULL,
    pool TEXT COLLATE "C" NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    not_before DOUBLE PRECISION NOT NULL,
    worker_id TEXT COLLATE "C",
    epoch BIGINT NOT NULL,
    lease_until DOUBLE PRECISION,
    is_held BOOLEAN NOT NULL,
    PRIMARY KEY (execution_id, command_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);

-- In the order of claiming. Rows that are appended leased, as most are, never enter it.
CREATE INDEX command_free ON noetl.command (pool, created_at, length(command_id), command_id)
WHERE worker_id IS NULL AND NOT is_held;

-- `lease_until` is in no index, so that a beat leaves them all alone.
CREATE INDEX command_leased ON noetl.command (worker_id) WHERE worker_id IS NOT NULL;

CREATE TABLE noetl.timer (
    execution_id BIGINT NOT NULL,
    timer_id TEXT COLLATE "C" NOT NULL,
    due DOUBLE PRECISION NOT NULL,
    payload BYTEA NOT NULL,
    PRIMARY KEY (execution_id, timer_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);

CREATE INDEX timer_by_due ON noetl.timer (due);

-- The last known state of an execution, so that a replay need not begin at the first event.
CREATE TABLE noetl.snapshot (
    execution_id BIGINT PRIMARY KEY,
    seq BIGINT NOT NULL,
    state BYTEA NOT NULL
);

-- The variables of executions.
CREATE TABLE noetl.transient (
    execution_id BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (execution_id, name)
) WITH (fillfactor = 80);

-- Result bodies. They may be stored before the append that refers to them.
CREATE TABLE noetl.result (
    key TEXT COLLATE "C" PRIMARY KEY,
    execution_id BIGINT NOT NULL,
    media_type TEXT NOT NULL,
    checksum TEXT NOT NULL,
    body BYTEA NOT NULL
);

CREATE INDEX result_by_execution ON noetl.result (execution_id);

CREATE TABLE noetl.catalog (
    path TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    name TEXT NOT NULL,
    dialect TEXT NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    registered_at TEXT COLLATE "C" NOT NULL,
    source BYTEA NOT NULL,
    PRIMARY KEY (path, version)
);

CREATE INDEX catalog_by_digest ON noetl.catalog (digest);
