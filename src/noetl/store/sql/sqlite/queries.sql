-- Every query of the SQLite store, each under its name. A query that writes or deletes rows is written for one
-- row, `VALUES (?, …)`; the store repeats the parenthesis for as many rows as it has.

-- name: save_executions
-- The projection of executions, those that are there already included.
INSERT INTO execution (
    execution_id, last_seq, status, name, path, version, dialect, requested_at, finished_at,
    parent_execution_id, error, playbook_digest
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (execution_id) DO UPDATE SET
    last_seq = excluded.last_seq,
    status = excluded.status,
    name = excluded.name,
    path = excluded.path,
    version = excluded.version,
    dialect = excluded.dialect,
    requested_at = excluded.requested_at,
    finished_at = excluded.finished_at,
    parent_execution_id = excluded.parent_execution_id,
    error = excluded.error,
    playbook_digest = excluded.playbook_digest;

-- name: advance_executions
-- Where only the log went on and the projection stays as it is: no index is touched.
UPDATE execution SET last_seq = head.column2
FROM (VALUES (?, ?)) AS head
WHERE execution.execution_id = head.column1;

-- name: insert_events
INSERT INTO event (execution_id, seq, event_type, loop_run_id, loop_index, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: insert_event_keys
INSERT INTO event_key (execution_id, idem_key, seq) VALUES (?, ?, ?);

-- name: event_with_key
SELECT event.body
FROM event_key
JOIN event ON event.execution_id = event_key.execution_id AND event.seq = event_key.seq
WHERE event_key.execution_id = ? AND event_key.idem_key = ?;

-- name: head
-- How far the log of an execution goes.
SELECT last_seq FROM execution WHERE execution_id = ?;

-- name: events
SELECT body FROM event WHERE execution_id = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: iteration_results
SELECT loop_index, body FROM event
WHERE execution_id = ? AND loop_run_id = ? AND loop_index IS NOT NULL
ORDER BY loop_index, seq;

-- name: save_commands
INSERT OR REPLACE INTO command (
    execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_commands
DELETE FROM command WHERE (execution_id, command_id) IN (VALUES (?, ?));

-- name: delete_commands_of
DELETE FROM command WHERE execution_id IN (VALUES (?));

-- name: commands
-- The longest waiting first. A parameter that is null does not narrow it.
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM command
WHERE (:execution_id IS NULL OR execution_id = :execution_id)
    AND (:pool IS NULL OR pool = :pool)
    AND (:state IS NULL OR :state = CASE WHEN is_held THEN 'held' WHEN worker_id IS NULL THEN 'free' ELSE 'leased' END)
ORDER BY created_at, length(command_id), command_id LIMIT :limit;

-- name: command
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM command WHERE execution_id = ? AND command_id = ?;

-- name: free_commands
UPDATE command SET worker_id = NULL, lease_until = NULL, is_held = 0
WHERE (execution_id, command_id) IN (VALUES (?, ?));

-- name: hold_commands
UPDATE command SET worker_id = NULL, lease_until = NULL, is_held = 1
WHERE (execution_id, command_id) IN (VALUES (?, ?));

-- name: hold_unleased_commands
UPDATE command SET is_held = 1 WHERE execution_id = ? AND worker_id IS NULL;

-- name: claim
-- The longest waiting rows of a pool that may be begun now.
UPDATE command SET worker_id = :worker_id, epoch = epoch + 1, lease_until = :until
WHERE (execution_id, command_id) IN (
    SELECT execution_id, command_id FROM command
    WHERE pool = :pool AND worker_id IS NULL AND is_held = 0 AND not_before <= :now
    ORDER BY created_at, length(command_id), command_id LIMIT :limit
)
RETURNING execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held;

-- name: renew
-- Gives those that were still the worker's.
UPDATE command SET lease_until = ?
WHERE worker_id = ? AND (command_id, epoch) IN (VALUES (?, ?))
RETURNING command_id;

-- name: expired
-- A lease without an end was never beaten for: that is over too, and comes first.
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM command
WHERE worker_id IS NOT NULL AND (lease_until IS NULL OR lease_until <= ?)
ORDER BY lease_until, created_at, length(command_id), command_id LIMIT ?;

-- name: save_timers
INSERT OR REPLACE INTO timer (execution_id, timer_id, due, payload) VALUES (?, ?, ?, ?);

-- name: delete_timers
DELETE FROM timer WHERE (execution_id, timer_id) IN (VALUES (?, ?));

-- name: delete_timers_of
DELETE FROM timer WHERE execution_id IN (VALUES (?));

-- name: timers_due
SELECT timer_id, execution_id, due, payload FROM timer
WHERE due <= ? ORDER BY due, execution_id, timer_id LIMIT ?;

-- name: next_timer
SELECT min(due) FROM timer;

-- name: save_snapshots
INSERT OR REPLACE INTO snapshot (execution_id, seq, state) VALUES (?, ?, ?);

-- name: snapshot
SELECT seq, state FROM snapshot WHERE execution_id = ?;

-- name: save_vars
INSERT OR REPLACE INTO transient (execution_id, name, value) VALUES (?, ?, ?);

-- name: vars
SELECT name, value FROM transient WHERE execution_id = ? ORDER BY name;

-- name: save_bodies
INSERT OR REPLACE INTO result (key, execution_id, media_type, checksum, body) VALUES (?, ?, ?, ?, ?);

-- name: body
SELECT key, execution_id, media_type, checksum, body FROM result WHERE key = ?;

-- name: execution
SELECT execution_id, status, name, path, version, dialect, requested_at, finished_at, parent_execution_id,
    error, playbook_digest
FROM execution WHERE execution_id = ?;

-- The list of executions is put together from the pieces that follow; see `noetl.store.listing`.

-- name: listed_by_number
SELECT execution_id, status, name, path, version, dialect, requested_at, finished_at, parent_execution_id,
    error, playbook_digest
FROM execution
WHERE <filters> ORDER BY number <direction> LIMIT :limit;

-- name: listed_by_time
SELECT execution_id, status, name, path, version, dialect, requested_at, finished_at, parent_execution_id,
    error, playbook_digest
FROM execution
WHERE <filters> ORDER BY requested_at <direction>, number <direction> LIMIT :limit;

-- name: listed_status
status = :status;

-- name: listed_path
path = :path;

-- name: listed_parent
parent_execution_id = :parent;

-- name: listed_since
requested_at >= :since;

-- name: listed_before_by_number
number <past> (SELECT number FROM execution WHERE execution_id = :before);

-- name: listed_before_by_time
(requested_at, number) <past> (SELECT requested_at, number FROM execution WHERE execution_id = :before);

-- name: start_key
SELECT execution_id FROM start_key WHERE start_key = ?;

-- name: put_start_key
INSERT INTO start_key (start_key, execution_id, asked_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: forget_bodies
DELETE FROM result WHERE execution_id IN (SELECT execution_id FROM execution WHERE finished_at < ?);

-- name: forget_executions
-- What belongs to them goes along.
DELETE FROM execution WHERE finished_at < ?;

-- name: forget_start_keys
DELETE FROM start_key
WHERE asked_at < ? AND execution_id NOT IN (SELECT execution_id FROM execution);

-- name: queue
-- Since when the longest waiting free one could have been begun.
SELECT pool, CASE WHEN is_held THEN 'held' WHEN worker_id IS NULL THEN 'free' ELSE 'leased' END AS state,
    count(*),
    min(
        CASE WHEN worker_id IS NULL AND NOT is_held AND created_at <> ''
            THEN max((julianday(created_at) - 2440587.5) * 86400.0, not_before)
        END
    )
FROM command
WHERE :execution_id IS NULL OR execution_id = :execution_id
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: open_children
SELECT execution_id FROM execution
WHERE parent_execution_id = ? AND finished_at IS NULL ORDER BY number;

-- name: insert_catalog_entry
INSERT INTO catalog (path, version, name, dialect, digest, registered_at, source) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: newest_catalog_entry
SELECT path, version, name, dialect, digest, registered_at, source FROM catalog
WHERE path = ? ORDER BY version DESC LIMIT 1;

-- name: catalog_entry
SELECT path, version, name, dialect, digest, registered_at, source FROM catalog
WHERE path = ? AND version = ?;

-- name: catalog_by_digest
SELECT path, version, name, dialect, digest, registered_at, source FROM catalog
WHERE digest = ? ORDER BY path, version DESC LIMIT 1;

-- name: catalog
-- The newest version of each playbook, by path; sources are left out.
SELECT path, version, name, dialect, digest, registered_at, x'' FROM catalog AS entry
WHERE version = (SELECT max(version) FROM catalog WHERE path = entry.path)
ORDER BY path LIMIT ?;

-- name: catalog_versions
SELECT path, version, name, dialect, digest, registered_at, x'' FROM catalog
WHERE path = ? ORDER BY version DESC LIMIT ?;

-- name: put_inbox
-- A request that is sent twice before it is taken counts once.
INSERT INTO inbox (request_id, kind, execution_id, payload) VALUES (?, ?, ?, ?)
ON CONFLICT (request_id) DO NOTHING;

-- name: inbox
SELECT request_id, kind, execution_id, payload FROM inbox ORDER BY number;

-- name: clear_inbox
DELETE FROM inbox;
