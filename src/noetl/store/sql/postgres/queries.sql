-- The questions to the PostgreSQL store, each under its name; what writes more than a row is a function of the
-- schema. Parameters are named.

-- name: append_all
SELECT execution_id, verdict, head, name, body FROM noetl.append_all(%(doc)s::jsonb, %(bytes)s::bytea);

-- name: events
SELECT body FROM noetl.event
WHERE execution_id = %(execution_id)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s;

-- name: iteration_results
SELECT loop_index, body FROM noetl.event
WHERE execution_id = %(execution_id)s AND loop_run_id = %(step_run_id)s AND loop_index IS NOT NULL
ORDER BY loop_index, seq;

-- name: snapshot
SELECT seq, state FROM noetl.snapshot WHERE execution_id = %(execution_id)s;

-- name: execution
SELECT execution_id, status, name, path, version, dialect, requested_at, finished_at, parent_execution_id, error,
    playbook_digest
FROM noetl.execution WHERE execution_id = %(execution_id)s;

-- The list of executions is put together from the pieces that follow; see `noetl.store.listing`.

-- name: listed_by_number
SELECT execution_id, status, name, path, version, dialect, requested_at, finished_at, parent_execution_id, error,
    playbook_digest
FROM noetl.execution
WHERE <filters> ORDER BY number <direction> LIMIT %(limit)s;

-- name: listed_by_time
SELECT execution_id, status, name, path, version, dialect, requested_at, finished_at, parent_execution_id, error,
    playbook_digest
FROM noetl.execution
WHERE <filters> ORDER BY requested_at <direction>, number <direction> LIMIT %(limit)s;

-- name: listed_status
status = %(status)s;

-- name: listed_path
path = %(path)s;

-- name: listed_parent
parent_execution_id = %(parent)s::bigint;

-- name: listed_since
requested_at >= %(since)s;

-- name: listed_before_by_number
number <past> (SELECT number FROM noetl.execution WHERE execution_id = %(before)s::bigint);

-- name: listed_before_by_time
(requested_at, number) <past> (
    SELECT requested_at, number FROM noetl.execution WHERE execution_id = %(before)s::bigint
);

-- name: start_key
-- Written again with its own content where it is there, so that the row of whoever was first is seen.
INSERT INTO noetl.start_key AS known (start_key, execution_id, asked_at)
VALUES (%(key)s, %(execution_id)s, %(now)s)
ON CONFLICT (start_key) DO UPDATE SET execution_id = known.execution_id
RETURNING execution_id;

-- name: forget_start_keys
DELETE FROM noetl.start_key AS known
WHERE asked_at < %(moment)s
    AND NOT EXISTS (SELECT FROM noetl.execution AS row WHERE row.execution_id = known.execution_id);

-- name: queue
-- Since when the longest waiting free one could have been begun.
SELECT pool, CASE WHEN is_held THEN 'held' WHEN worker_id IS NULL THEN 'free' ELSE 'leased' END AS state,
    count(*) AS depth,
    min(greatest(extract(EPOCH FROM nullif(created_at, '')::timestamptz)::double precision, not_before))
        FILTER (WHERE worker_id IS NULL AND NOT is_held AND created_at <> '') AS oldest
FROM noetl.command
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: queue_of
SELECT pool, CASE WHEN is_held THEN 'held' WHEN worker_id IS NULL THEN 'free' ELSE 'leased' END AS state,
    count(*) AS depth,
    min(greatest(extract(EPOCH FROM nullif(created_at, '')::timestamptz)::double precision, not_before))
        FILTER (WHERE worker_id IS NULL AND NOT is_held AND created_at <> '') AS oldest
FROM noetl.command
WHERE execution_id = %(execution_id)s
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: open_children
SELECT execution_id FROM noetl.execution
WHERE parent_execution_id = %(execution_id)s AND finished_at IS NULL ORDER BY number;

-- name: claim
SELECT (command).*, last_seq FROM noetl.claim(%(pool)s, %(worker_id)s, %(limit)s, %(seconds)s);

-- name: renew
-- The leases that are not the worker's any more. A row that is locked is about to be changed by an append, which
-- ends the lease; nobody waits for that.
WITH wanted AS (
    SELECT command_id, epoch FROM unnest(%(command_ids)s::text[], %(epochs)s::bigint[]) AS given (command_id, epoch)
),
own AS MATERIALIZED (
    SELECT execution_id, command_id, epoch FROM noetl.command
    WHERE worker_id = %(worker_id)s AND (command_id, epoch) IN (SELECT command_id, epoch FROM wanted)
),
free_to_change AS (
    SELECT row.execution_id, row.command_id FROM noetl.command AS row
    JOIN own ON own.execution_id = row.execution_id AND own.command_id = row.command_id
    FOR NO KEY UPDATE OF row SKIP LOCKED
),
renewed AS (
    UPDATE noetl.command AS row
    SET lease_until = extract(EPOCH FROM clock_timestamp()) + %(seconds)s
    FROM free_to_change AS found
    WHERE row.execution_id = found.execution_id AND row.command_id = found.command_id
)
SELECT command_id FROM wanted WHERE (command_id, epoch) NOT IN (SELECT command_id, epoch FROM own);

-- name: expired
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM noetl.expired(%(limit)s);

-- name: command
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM noetl.command WHERE execution_id = %(execution_id)s AND command_id = %(command_id)s;

-- name: commands
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM noetl.command
WHERE (%(pool)s::text IS NULL OR pool = %(pool)s)
    AND (
        %(state)s::text IS NULL
        OR %(state)s = CASE WHEN is_held THEN 'held' WHEN worker_id IS NULL THEN 'free' ELSE 'leased' END
    )
ORDER BY created_at, length(command_id), command_id LIMIT %(limit)s;

-- name: commands_of
SELECT execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
    is_held
FROM noetl.command
WHERE execution_id = %(execution_id)s AND (%(pool)s::text IS NULL OR pool = %(pool)s)
    AND (
        %(state)s::text IS NULL
        OR %(state)s = CASE WHEN is_held THEN 'held' WHEN worker_id IS NULL THEN 'free' ELSE 'leased' END
    )
ORDER BY created_at, length(command_id), command_id LIMIT %(limit)s;

-- name: timers_due
SELECT timer_id, execution_id, due, payload FROM noetl.timer
WHERE due <= %(now)s ORDER BY due, execution_id, timer_id LIMIT %(limit)s;

-- name: next_timer
SELECT min(due) AS due FROM noetl.timer;

-- name: vars
SELECT name, value FROM noetl.transient WHERE execution_id = %(execution_id)s ORDER BY name;

-- name: body
SELECT key, execution_id, media_type, checksum, body FROM noetl.result WHERE key = %(key)s;

-- name: put_body
INSERT INTO noetl.result (key, execution_id, media_type, checksum, body)
VALUES (%(key)s, %(execution_id)s, %(media_type)s, %(checksum)s, %(body)s)
ON CONFLICT (key) DO UPDATE SET
    execution_id = excluded.execution_id,
    media_type = excluded.media_type,
    checksum = excluded.checksum,
    body = excluded.body;

-- name: register
SELECT path, version, name, dialect, digest, registered_at, source
FROM noetl.register(%(path)s, %(name)s, %(dialect)s, %(digest)s, %(registered_at)s, %(source)s);

-- name: newest_catalog_entry
SELECT path, version, name, dialect, digest, registered_at, source FROM noetl.catalog
WHERE path = %(path)s ORDER BY version DESC LIMIT 1;

-- name: catalog_entry
SELECT path, version, name, dialect, digest, registered_at, source FROM noetl.catalog
WHERE path = %(path)s AND version = %(version)s;

-- name: catalog_by_digest
SELECT path, version, name, dialect, digest, registered_at, source FROM noetl.catalog
WHERE digest = %(digest)s ORDER BY path, version DESC LIMIT 1;

-- name: catalog
-- The newest version of each playbook, by path; sources are left out.
SELECT path, version, name, dialect, digest, registered_at, ''::bytea AS source FROM noetl.catalog AS entry
WHERE version = (SELECT max(version) FROM noetl.catalog WHERE path = entry.path)
ORDER BY path LIMIT %(limit)s;

-- name: catalog_versions
SELECT path, version, name, dialect, digest, registered_at, ''::bytea AS source FROM noetl.catalog
WHERE path = %(path)s ORDER BY version DESC LIMIT %(limit)s;

-- name: forget_before
SELECT noetl.forget_before(to_timestamp(%(moment)s)) AS forgotten;
