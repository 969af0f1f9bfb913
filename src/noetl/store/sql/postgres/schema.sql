-- Questions about the database itself: what was applied to it, and how it fares.

-- name: prepare
-- Two statements in one: nothing in them depends on what the database has.
CREATE SCHEMA IF NOT EXISTS noetl;
CREATE TABLE IF NOT EXISTS noetl.migration (
    version INT PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- name: applied
SELECT version, name, checksum FROM noetl.migration ORDER BY version;

-- name: record
INSERT INTO noetl.migration (version, name, checksum) VALUES (%(version)s, %(name)s, %(checksum)s);

-- name: server
SELECT current_setting('server_version') AS server;

-- name: queue
SELECT
    count(*) FILTER (WHERE worker_id IS NULL AND NOT is_held) AS free_commands,
    count(*) FILTER (WHERE worker_id IS NOT NULL) AS leased_commands,
    count(*) FILTER (WHERE is_held) AS held_commands,
    count(*) FILTER (
        WHERE worker_id IS NOT NULL AND coalesce(lease_until, 0) <= extract(EPOCH FROM clock_timestamp())
    ) AS expired_leases,
    count(*) FILTER (
        WHERE worker_id IS NOT NULL AND coalesce(lease_until, 0) <= extract(EPOCH FROM clock_timestamp()) - 60
    ) AS abandoned_leases,
    extract(EPOCH FROM clock_timestamp() - min(nullif(created_at, '')::timestamptz) FILTER (
        WHERE worker_id IS NULL AND NOT is_held AND not_before <= extract(EPOCH FROM clock_timestamp())
    ))::double precision AS oldest_free_seconds,
    (SELECT count(*) FROM noetl.execution WHERE finished_at IS NULL) AS open_executions,
    (SELECT count(*) FROM noetl.timer WHERE due < extract(EPOCH FROM clock_timestamp()) - 60) AS overdue_timers
FROM noetl.command;

-- name: table
SELECT
    pg_total_relation_size('noetl.command') AS command_bytes,
    greatest(n_live_tup, 0) AS command_rows,
    n_dead_tup AS command_dead_rows,
    to_char(greatest(last_autovacuum, last_vacuum) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
        AS command_vacuumed_at
FROM pg_stat_all_tables WHERE relid = 'noetl.command'::regclass;

-- name: partitions
SELECT
    count(*) + 1 AS partitions,
    to_char(max(until) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS partitions_until,
    coalesce(max(until), '-infinity') <= now() AS lacks_partition
FROM noetl.weeks();
