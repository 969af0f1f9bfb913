-- The tables of the first schema. A migration that has been released is never edited; a later one follows it.

-- The projection of each execution, and how far its log goes (`last_seq`). `number` gives the order in which
-- executions came in; ids are text and need not sort.
CREATE TABLE execution (
    number INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL UNIQUE,
    last_seq INTEGER NOT NULL,
    status TEXT NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    version INTEGER NOT NULL,
    dialect TEXT NOT NULL,
    requested_at TEXT NOT NULL,
    finished_at TEXT,
    parent_execution_id TEXT,
    error BLOB,
    playbook_digest TEXT NOT NULL
);

CREATE INDEX execution_by_status ON execution (status, number);

-- The log. `body` is the whole event as JSON, once; the columns beside it are what queries ask for.
-- A table with row ids, because events of many executions then go to the end of one tree: measured three times
-- as fast as a table ordered by its key when a thousand executions write in turn.
-- `loop_run_id` and `loop_index` are set only on the end of an iteration of a step's own loop.
CREATE TABLE event (
    execution_id TEXT NOT NULL REFERENCES execution (execution_id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    loop_run_id TEXT,
    loop_index INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY (execution_id, seq)
);

CREATE INDEX event_by_loop ON event (execution_id, loop_run_id, loop_index) WHERE loop_index IS NOT NULL;

-- The keys under which a repeated event is recognised.
CREATE TABLE event_key (
    execution_id TEXT NOT NULL REFERENCES execution (execution_id) ON DELETE CASCADE,
    idem_key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (execution_id, idem_key)
) WITHOUT ROWID;

-- The queue: work that is not over yet.
CREATE TABLE command (
    execution_id TEXT NOT NULL REFERENCES execution (execution_id) ON DELETE CASCADE,
    command_id TEXT NOT NULL,
    step TEXT NOT NULL,
    step_run_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    created_at TEXT NOT NULL,
    not_before REAL NOT NULL,
    PRIMARY KEY (execution_id, command_id)
) WITHOUT ROWID;

CREATE TABLE timer (
    execution_id TEXT NOT NULL REFERENCES execution (execution_id) ON DELETE CASCADE,
    timer_id TEXT NOT NULL,
    due REAL NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (execution_id, timer_id)
) WITHOUT ROWID;

CREATE INDEX timer_by_due ON timer (due);

-- The last known state of an execution, so that a replay need not begin at the first event.
CREATE TABLE snapshot (
    execution_id TEXT PRIMARY KEY REFERENCES execution (execution_id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL
);

-- The variables of executions.
CREATE TABLE transient (
    execution_id TEXT NOT NULL REFERENCES execution (execution_id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (execution_id, name)
) WITHOUT ROWID;

-- Result bodies. They may be stored before the append that refers to them, so no key binds them to an execution.
CREATE TABLE result (
    key TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL,
    media_type TEXT NOT NULL,
    checksum TEXT NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE catalog (
    path TEXT NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    dialect TEXT NOT NULL,
    digest TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    source BLOB NOT NULL,
    PRIMARY KEY (path, version)
);

CREATE INDEX catalog_by_digest ON catalog (digest);

-- Requests of other processes to the one that owns the database, in the order they came.
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    payload BLOB NOT NULL
);
