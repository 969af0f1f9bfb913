-- What is more than one statement: the append, the claim, the registration of a playbook, and the care of
-- partitions. Plans are made once and must stay good while tables grow from nothing to millions of rows, so ways
-- that read a whole table are switched off in functions that only ever look up keys.

-- Writes changes to different executions in one transaction. `doc` has a list for each kind of row, those that
-- would be empty left out; `bytes` has all bodies end to end, of which rows name place and length.
-- Answers with rows only for what was not written, and for what it may be a repetition of:
--   conflict  the log has gone on, up to `head`
--   fenced    the lease of the command `name` is over
--   known     the key `name` stands in the log for `body`; the caller compares
-- Of two changes at the right version, one with a known key is rare, and the unique index refuses it; the caller
-- asks again with `check_keys`.
CREATE FUNCTION noetl.append_all(doc JSONB, bytes BYTEA)
RETURNS TABLE (execution_id BIGINT, verdict TEXT, head BIGINT, name TEXT, body BYTEA)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    clock CONSTANT DOUBLE PRECISION := extract(EPOCH FROM clock_timestamp());
    asked BIGINT[];
    fresh BIGINT[];
    late BIGINT[];
    fenced BIGINT[] := '{}';
    refused BIGINT[] := '{}';
    asking BIGINT;
BEGIN
    -- The row of an execution is the lock on all that belongs to it. In order of ids, so that nobody waits in a
    -- circle.
    WITH change AS MATERIALIZED (
        SELECT given.id, given.version FROM jsonb_to_recordset(doc -> 'changes') AS given (id BIGINT, version BIGINT)
    ),
    locked AS MATERIALIZED (
        SELECT noetl.execution.execution_id AS id, last_seq FROM noetl.execution
        WHERE noetl.execution.execution_id = ANY (ARRAY(SELECT id FROM change))
        ORDER BY noetl.execution.execution_id
        FOR NO KEY UPDATE
    )
    SELECT
        array_agg(change.id ORDER BY change.id),
        coalesce(array_agg(change.id) FILTER (WHERE locked.id IS NULL), '{}'),
        coalesce(array_agg(change.id) FILTER (WHERE change.version <> coalesce(last_seq, 0)), '{}')
    INTO asked, fresh, late
    FROM change LEFT JOIN locked ON locked.id = change.id;

    IF doc ? 'fences' THEN
        -- A lease that is said to have run out may be prolonged meanwhile by a beat, which knows no lock on
        -- executions. Nothing else ends or begins a lease beside the holder of that lock, except a claim, and
        -- that only of rows nobody has.
        IF doc ? 'expired' THEN
            PERFORM FROM noetl.command
            WHERE (noetl.command.execution_id, command_id) IN (
                SELECT id, command FROM jsonb_to_recordset(doc -> 'fences') AS given (id BIGINT, command TEXT)
            )
            ORDER BY noetl.command.execution_id, command_id
            FOR UPDATE;
        END IF;
        FOR execution_id, name IN
            SELECT given.id, given.command
            FROM jsonb_to_recordset(doc -> 'fences')
                AS given (id BIGINT, command TEXT, epoch BIGINT, expired BOOLEAN)
            LEFT JOIN noetl.command AS row ON row.execution_id = given.id AND row.command_id = given.command
            WHERE given.id <> ALL (late)
                AND (row.worker_id IS NULL OR row.epoch <> given.epoch
                     OR (given.expired AND row.lease_until > clock))
        LOOP
            fenced := fenced || execution_id;
            verdict := 'fenced';
            RETURN NEXT;
        END LOOP;
        name := NULL;
    END IF;

    IF fresh <> '{}' THEN
        fresh := ARRAY(SELECT unnest(fresh) EXCEPT SELECT unnest(late || fenced));
        WITH inserted AS (
            INSERT INTO noetl.execution (
                execution_id, last_seq, status, name, path, version, dialect, requested_at, finished_at,
                parent_execution_id, error, playbook_digest
            )
            SELECT
                id, last_seq, status, given.name, path, playbook_version, dialect, requested_at, finished_at,
                parent, CASE WHEN size IS NOT NULL THEN substr(bytes, place, size) END, digest
            FROM jsonb_to_recordset(doc -> 'changes') AS given (
                id BIGINT, last_seq BIGINT, status TEXT, name TEXT, path TEXT, playbook_version BIGINT, dialect TEXT,
                requested_at TEXT, finished_at TEXT, parent BIGINT, place INT, size INT, digest TEXT
            )
            WHERE id = ANY (fresh)
            ORDER BY id
            ON CONFLICT DO NOTHING
            RETURNING noetl.execution.execution_id AS id
        )
        -- Somebody else may have been first with one of them.
        SELECT late || ARRAY(SELECT unnest(fresh) EXCEPT SELECT id FROM inserted) INTO late;
    END IF;

    refused := late || fenced;
    FOREACH asking IN ARRAY CASE WHEN doc ? 'check_keys' THEN asked ELSE refused END LOOP
        FOR execution_id, name, body IN
            SELECT asking, given.key, event.body
            FROM jsonb_to_recordset(doc -> 'events') AS given (id BIGINT, key TEXT)
            JOIN noetl.event ON event.execution_id = asking AND event.idem_key = given.key
            WHERE given.id = asking
        LOOP
            verdict := 'known';
            IF asking <> ALL (refused) THEN
                refused := refused || asking;
            END IF;
            RETURN NEXT;
        END LOOP;
        name := NULL;
        body := NULL;
    END LOOP;
    FOREACH asking IN ARRAY late LOOP
        execution_id := asking;
        verdict := 'conflict';
        head := (SELECT last_seq FROM noetl.execution WHERE noetl.execution.execution_id = asking);
        RETURN NEXT;
    END LOOP;

    IF refused <> '{}' THEN
        asked := ARRAY(SELECT unnest(asked) EXCEPT SELECT unnest(refused));
    END IF;
    PERFORM noetl.write_changes(doc, bytes, asked, fresh, clock);
END
$$;

-- The second half of an append: writes the rows of the executions that were `admitted`. Their projection is there
-- already where they are `fresh`.
CREATE FUNCTION noetl.write_changes(
    doc JSONB, bytes BYTEA, admitted BIGINT[], fresh BIGINT[], clock DOUBLE PRECISION
)
RETURNS VOID
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    IF admitted = '{}' THEN
        RETURN;
    END IF;

    UPDATE noetl.execution AS row SET
        last_seq = given.last_seq,
        status = given.status,
        name = given.name,
        path = given.path,
        version = given.playbook_version,
        dialect = given.dialect,
        requested_at = given.requested_at,
        finished_at = given.finished_at,
        parent_execution_id = given.parent,
        error = CASE WHEN given.size IS NOT NULL THEN substr(bytes, given.place, given.size) END,
        playbook_digest = given.digest
    FROM jsonb_to_recordset(doc -> 'changes') AS given (
        id BIGINT, last_seq BIGINT, status TEXT, name TEXT, path TEXT, playbook_version BIGINT, dialect TEXT,
        requested_at TEXT, finished_at TEXT, parent BIGINT, place INT, size INT, digest TEXT
    )
    WHERE row.execution_id = given.id AND given.id = ANY (admitted) AND given.id <> ALL (fresh);

    INSERT INTO noetl.event (execution_id, seq, event_type, idem_key, loop_run_id, loop_index, body)
    SELECT id, seq, type, key, loop_run, loop_index, substr(bytes, place, size)
    FROM jsonb_to_recordset(doc -> 'events') AS given (
        id BIGINT, seq BIGINT, type TEXT, key TEXT, loop_run TEXT, loop_index BIGINT, place INT, size INT
    )
    WHERE id = ANY (admitted);

    PERFORM noetl.write_queue(doc, admitted, clock);

    IF doc ? 'clear_timers' THEN
        DELETE FROM noetl.timer USING jsonb_to_recordset(doc -> 'clear_timers') AS given (id BIGINT)
        WHERE execution_id = id AND id = ANY (admitted);
    END IF;
    IF doc ? 'remove_timers' THEN
        DELETE FROM noetl.timer USING jsonb_to_recordset(doc -> 'remove_timers') AS given (id BIGINT, timer TEXT)
        WHERE execution_id = id AND timer_id = timer AND id = ANY (admitted);
    END IF;
    IF doc ? 'timers' THEN
        INSERT INTO noetl.timer (execution_id, timer_id, due, payload)
        SELECT id, timer, given.due, substr(bytes, place, size)
        FROM jsonb_to_recordset(doc -> 'timers')
            AS given (id BIGINT, timer TEXT, due DOUBLE PRECISION, place INT, size INT)
        WHERE id = ANY (admitted)
        ON CONFLICT (execution_id, timer_id) DO UPDATE SET due = excluded.due, payload = excluded.payload;
    END IF;
    IF doc ? 'vars' THEN
        INSERT INTO noetl.transient (execution_id, name, value)
        SELECT id, given.name, substr(bytes, place, size)
        FROM jsonb_to_recordset(doc -> 'vars') AS given (id BIGINT, name TEXT, place INT, size INT)
        WHERE id = ANY (admitted)
        ON CONFLICT (execution_id, name) DO UPDATE SET value = excluded.value;
    END IF;
    IF doc ? 'bodies' THEN
        INSERT INTO noetl.result (key, execution_id, media_type, checksum, body)
        SELECT given.key, owner, media, given.checksum, substr(bytes, place, size)
        FROM jsonb_to_recordset(doc -> 'bodies')
            AS given (id BIGINT, key TEXT, owner BIGINT, media TEXT, checksum TEXT, place INT, size INT)
        WHERE id = ANY (admitted)
        ORDER BY given.key
        ON CONFLICT (key) DO UPDATE SET
            execution_id = excluded.execution_id,
            media_type = excluded.media_type,
            checksum = excluded.checksum,
            body = excluded.body;
    END IF;
    IF doc ? 'snapshots' THEN
        INSERT INTO noetl.snapshot (execution_id, seq, state)
        SELECT id, given.seq, substr(bytes, place, size)
        FROM jsonb_to_recordset(doc -> 'snapshots') AS given (id BIGINT, seq BIGINT, place INT, size INT)
        WHERE id = ANY (admitted)
        ON CONFLICT (execution_id) DO UPDATE SET seq = excluded.seq, state = excluded.state;
    END IF;
END
$$;

-- What an append does to the queue, in the order in which every store does it.
CREATE FUNCTION noetl.write_queue(doc JSONB, admitted BIGINT[], clock DOUBLE PRECISION)
RETURNS VOID
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    IF doc ? 'clear_commands' THEN
        DELETE FROM noetl.command USING jsonb_to_recordset(doc -> 'clear_commands') AS given (id BIGINT)
        WHERE execution_id = id AND id = ANY (admitted);
    END IF;
    IF doc ? 'remove_commands' THEN
        DELETE FROM noetl.command
        USING jsonb_to_recordset(doc -> 'remove_commands') AS given (id BIGINT, command TEXT)
        WHERE execution_id = id AND command_id = command AND id = ANY (admitted);
    END IF;
    IF doc ? 'commands' THEN
        INSERT INTO noetl.command (
            execution_id, command_id, step, step_run_id, pool, created_at, not_before, worker_id, epoch, lease_until,
            is_held
        )
        SELECT
            id, command, given.step, run, given.pool, given.created_at, given.not_before, worker, given.epoch,
            clock + lease, held
        FROM jsonb_to_recordset(doc -> 'commands') AS given (
            id BIGINT, command TEXT, step TEXT, run TEXT, pool TEXT, created_at TEXT, not_before DOUBLE PRECISION,
            worker TEXT, epoch BIGINT, lease DOUBLE PRECISION, held BOOLEAN
        )
        WHERE id = ANY (admitted)
        ON CONFLICT (execution_id, command_id) DO UPDATE SET
            step = excluded.step,
            step_run_id = excluded.step_run_id,
            pool = excluded.pool,
            created_at = excluded.created_at,
            not_before = excluded.not_before,
            worker_id = excluded.worker_id,
            epoch = excluded.epoch,
            lease_until = excluded.lease_until,
            is_held = excluded.is_held;
    END IF;
    IF doc ? 'free_commands' THEN
        UPDATE noetl.command SET worker_id = NULL, lease_until = NULL, is_held = FALSE
        FROM jsonb_to_recordset(doc -> 'free_commands') AS given (id BIGINT, command TEXT)
        WHERE execution_id = id AND command_id = command AND id = ANY (admitted);
    END IF;
    IF doc ? 'hold_commands' THEN
        UPDATE noetl.command SET worker_id = NULL, lease_until = NULL, is_held = TRUE
        FROM jsonb_to_recordset(doc -> 'hold_commands') AS given (id BIGINT, command TEXT)
        WHERE execution_id = id AND command_id = command AND id = ANY (admitted);
    END IF;
    IF doc ? 'hold_unleased_commands' THEN
        UPDATE noetl.command SET is_held = TRUE
        FROM jsonb_to_recordset(doc -> 'hold_unleased_commands') AS given (id BIGINT)
        WHERE execution_id = id AND worker_id IS NULL AND id = ANY (admitted);
    END IF;
END
$$;

-- Leases the longest waiting rows of a pool that may be begun now. Rows that somebody else is about to lease or
-- remove are passed over, not waited for.
CREATE FUNCTION noetl.claim(wanted_pool TEXT, worker TEXT, most BIGINT, seconds DOUBLE PRECISION)
RETURNS TABLE (command noetl.command, last_seq BIGINT)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    clock CONSTANT DOUBLE PRECISION := extract(EPOCH FROM clock_timestamp());
    claimed noetl.command[];
BEGIN
    WITH taken AS (
        UPDATE noetl.command AS row SET worker_id = worker, epoch = row.epoch + 1, lease_until = clock + seconds
        FROM (
            SELECT execution_id, command_id FROM noetl.command AS free
            WHERE free.pool = wanted_pool AND worker_id IS NULL AND NOT is_held AND not_before <= clock
            ORDER BY created_at, length(command_id), command_id
            LIMIT most
            FOR UPDATE SKIP LOCKED
        ) AS found
        WHERE row.execution_id = found.execution_id AND row.command_id = found.command_id
        RETURNING row AS whole
    )
    SELECT array_agg(whole) INTO claimed FROM taken;
    -- In a statement of its own, which sees whatever was committed before the rows were locked.
    RETURN QUERY
    SELECT one, execution.last_seq FROM unnest(claimed) AS one
    JOIN noetl.execution ON execution.execution_id = one.execution_id;
END
$$;

-- Leased rows whose time is over. A lease without an end was never beaten for: that is over too, and comes first.
CREATE FUNCTION noetl.expired(most BIGINT)
RETURNS SETOF noetl.command
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY
    SELECT * FROM noetl.command
    WHERE worker_id IS NOT NULL
        AND (lease_until IS NULL OR lease_until <= extract(EPOCH FROM clock_timestamp()))
    ORDER BY lease_until NULLS FIRST, created_at, length(command_id), command_id
    LIMIT most;
END
$$;

-- Gives a playbook its next version, or the newest one if its text is the same. Those who register the same path
-- at once take turns.
CREATE FUNCTION noetl.register(path TEXT, name TEXT, dialect TEXT, digest TEXT, registered_at TEXT, source BYTEA)
RETURNS SETOF noetl.catalog
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    newest noetl.catalog;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('noetl.catalog ' || path, 0));
    SELECT * INTO newest FROM noetl.catalog
    WHERE noetl.catalog.path = register.path ORDER BY version DESC LIMIT 1;
    IF newest.digest = register.digest THEN
        RETURN NEXT newest;
        RETURN;
    END IF;
    RETURN QUERY
    INSERT INTO noetl.catalog (path, version, name, dialect, digest, registered_at, source)
    VALUES (
        register.path, coalesce(newest.version, 0) + 1, register.name, register.dialect, register.digest,
        register.registered_at, register.source
    )
    RETURNING *;
END
$$;

-- The partitions of `event` that are weeks, with the first id of each and the first after it. An id begins with
-- the milliseconds since 2024, and 22 bits follow.
CREATE FUNCTION noetl.weeks()
RETURNS TABLE (partition TEXT, first_id BIGINT, next_id BIGINT, until TIMESTAMPTZ)
LANGUAGE sql STABLE
AS $$
    SELECT
        relname,
        (extract(EPOCH FROM week - TIMESTAMPTZ '2024-01-01 00:00Z')::BIGINT * 1000) << 22,
        (extract(EPOCH FROM week + INTERVAL '168 hours' - TIMESTAMPTZ '2024-01-01 00:00Z')::BIGINT * 1000) << 22,
        week + INTERVAL '168 hours'
    FROM (
        SELECT relname::TEXT, to_timestamp(right(relname, 8) || ' +00', 'YYYYMMDD TZH') AS week
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'noetl.event'::REGCLASS AND relname ~ '^event_\d{8}$'
    ) AS named
$$;

-- Makes the partitions for this week and those `ahead`; says how many were missing. Rows that are in the last
-- partition already, for want of a better one, move.
CREATE FUNCTION noetl.ensure_partitions(ahead INT DEFAULT 4, at TIMESTAMPTZ DEFAULT now())
RETURNS INT
LANGUAGE plpgsql
AS $$
DECLARE
    origin CONSTANT TIMESTAMPTZ := '2024-01-01 00:00Z';
    this_week CONSTANT INT := extract(EPOCH FROM at - origin)::BIGINT / 604800;
    week TIMESTAMPTZ;
    partition TEXT;
    first_id BIGINT;
    next_id BIGINT;
    made INT := 0;
BEGIN
    FOR number IN this_week .. this_week + ahead LOOP
        week := origin + number * INTERVAL '168 hours';
        partition := 'event_' || to_char(week AT TIME ZONE 'UTC', 'YYYYMMDD');
        IF to_regclass('noetl.' || partition) IS NOT NULL THEN
            CONTINUE;
        END IF;
        PERFORM pg_advisory_xact_lock(hashtextextended('noetl.partitions', 0));
        IF to_regclass('noetl.' || partition) IS NOT NULL THEN
            CONTINUE;
        END IF;
        first_id := (number::BIGINT * 604800000) << 22;
        next_id := ((number::BIGINT + 1) * 604800000) << 22;
        EXECUTE format('CREATE TABLE noetl.%I (LIKE noetl.event)', partition);
        EXECUTE format(
            'WITH moved AS (DELETE FROM noetl.event_other WHERE execution_id >= %s AND execution_id < %s RETURNING *)'
            ' INSERT INTO noetl.%I SELECT * FROM moved', first_id, next_id, partition
        );
        EXECUTE format(
            'ALTER TABLE noetl.event ATTACH PARTITION noetl.%I FOR VALUES FROM (%s) TO (%s)',
            partition, first_id, next_id
        );
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

-- Forgets executions that ended before a moment, with all that belongs to them; says how many. Partitions whose
-- week was over by then are dropped whole; what must stay of them (executions that still run, or ids that are
-- hashes) moves to the last one. Those of a week that is not dropped yet wait for it: no log is deleted row by row
-- but in the last partition.
CREATE FUNCTION noetl.forget_before(moment TIMESTAMPTZ)
RETURNS BIGINT
LANGUAGE plpgsql
AS $$
DECLARE
    gone BIGINT[];
    week RECORD;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('noetl.partitions', 0));
    WITH deleted AS (
        DELETE FROM noetl.execution AS row
        WHERE finished_at < to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
            AND NOT EXISTS (
                SELECT FROM noetl.weeks() AS known
                WHERE known.until > moment
                    AND row.execution_id >= known.first_id AND row.execution_id < known.next_id
            )
        RETURNING execution_id
    )
    SELECT coalesce(array_agg(execution_id), '{}') INTO gone FROM deleted;
    FOR week IN SELECT * FROM noetl.weeks() AS known WHERE known.until <= moment LOOP
        EXECUTE format('ALTER TABLE noetl.event DETACH PARTITION noetl.%I', week.partition);
        EXECUTE format(
            'INSERT INTO noetl.event SELECT old.* FROM noetl.%I AS old'
            ' JOIN noetl.execution ON noetl.execution.execution_id = old.execution_id', week.partition
        );
        EXECUTE format('DROP TABLE noetl.%I', week.partition);
    END LOOP;
    DELETE FROM noetl.event_other WHERE execution_id = ANY (gone);
    DELETE FROM noetl.snapshot WHERE execution_id = ANY (gone);
    DELETE FROM noetl.transient WHERE execution_id = ANY (gone);
    DELETE FROM noetl.result WHERE execution_id = ANY (gone);
    DELETE FROM noetl.command WHERE execution_id = ANY (gone);
    DELETE FROM noetl.timer WHERE execution_id = ANY (gone);
    RETURN cardinality(gone);
END
$$;
