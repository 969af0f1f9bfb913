-- Every query of the registry on PostgreSQL, each under its name. Parameters are named; ids leave as text.

-- name: insert_credential
INSERT INTO noetl.credential (
    credential_id, name, type, version, description, tags, meta, key_id, data_key, body, created_at, updated_at
)
VALUES (
    %(credential_id)s::bigint, %(name)s, %(type)s, %(version)s, %(description)s, %(tags)s, %(meta)s,
    %(key_id)s, %(data_key)s, %(body)s, %(created_at)s, %(updated_at)s
)
ON CONFLICT DO NOTHING
RETURNING 1 AS done;

-- name: update_credential
-- Only if nobody has changed it since it was read.
UPDATE noetl.credential SET
    type = %(type)s,
    version = %(version)s,
    description = %(description)s,
    tags = %(tags)s,
    meta = %(meta)s,
    key_id = %(key_id)s,
    data_key = %(data_key)s,
    body = %(body)s,
    updated_at = %(updated_at)s
WHERE credential_id = %(credential_id)s::bigint AND version = %(version)s - 1
RETURNING 1 AS done;

-- name: credential
-- By name or by id; no name looks like an id.
SELECT
    credential_id::text AS credential_id, name, type, version, description, tags, meta, key_id, data_key,
    body, created_at, updated_at
FROM noetl.credential
WHERE name = %(identifier)s OR credential_id::text = %(identifier)s;

-- name: credentials
SELECT
    credential_id::text AS credential_id, name, type, version, description, tags, meta, key_id, data_key,
    body, created_at, updated_at
FROM noetl.credential
WHERE name COLLATE "C" > %(after)s
    AND (%(type)s::text IS NULL OR type = %(type)s)
    AND (
        %(text)s::text IS NULL
        OR position(lower(%(text)s) IN lower(name)) > 0
        OR position(lower(%(text)s) IN lower(description)) > 0
        OR position(lower(%(text)s) IN lower(tags::text)) > 0
    )
ORDER BY name COLLATE "C"
LIMIT %(limit)s;

-- name: delete_credential
DELETE FROM noetl.credential WHERE credential_id = %(credential_id)s::bigint RETURNING 1 AS done;

-- name: credentials_of_other_keys
SELECT
    credential_id::text AS credential_id, name, type, version, description, tags, meta, key_id, data_key,
    body, created_at, updated_at
FROM noetl.credential
WHERE key_id <> %(key_id)s AND name COLLATE "C" > %(after)s
ORDER BY name COLLATE "C"
LIMIT %(limit)s;

-- name: rewrap_credential
-- The body stays; only if it is still the one whose key was unwrapped.
UPDATE noetl.credential SET key_id = %(key_id)s, data_key = %(data_key)s
WHERE credential_id = %(credential_id)s::bigint AND version = %(version)s
RETURNING 1 AS done;

-- name: keep_cached
INSERT INTO noetl.auth_cache (
    cache_key, credential_name, credential_type, cache_type, scope_type, execution_id, parent_execution_id,
    data_encrypted, expires_at, created_at, accessed_at
)
VALUES (
    %(cache_key)s, %(credential_name)s, %(credential_type)s, %(cache_type)s, %(scope_type)s, %(execution_id)s,
    %(parent_execution_id)s, %(data_encrypted)s, %(expires_at)s, %(now)s, %(now)s
)
ON CONFLICT (cache_key) DO UPDATE SET
    credential_type = excluded.credential_type,
    data_encrypted = excluded.data_encrypted,
    expires_at = excluded.expires_at,
    accessed_at = excluded.accessed_at,
    access_count = auth_cache.access_count + 1
RETURNING *;

-- name: cached
-- Asking for it counts.
UPDATE noetl.auth_cache SET accessed_at = %(now)s, access_count = access_count + 1
WHERE cache_key = %(cache_key)s AND expires_at > %(now)s
RETURNING *;

-- name: cache_entries
SELECT * FROM noetl.auth_cache
WHERE %(credential_name)s::text IS NULL OR credential_name = %(credential_name)s
ORDER BY cache_key COLLATE "C";

-- name: forget_cached
DELETE FROM noetl.auth_cache
WHERE (%(credential_name)s::text IS NULL OR credential_name = %(credential_name)s)
    AND (%(expired_by)s::timestamptz IS NULL OR expires_at <= %(expired_by)s)
RETURNING 1 AS done;

-- name: forget_cached_of
WITH ended AS (
    SELECT value::bigint AS execution_id FROM jsonb_array_elements_text(%(execution_ids)s::jsonb) AS each (value)
)
DELETE FROM noetl.auth_cache
WHERE execution_id IN (SELECT execution_id FROM ended)
    OR parent_execution_id IN (SELECT execution_id FROM ended)
RETURNING 1 AS done;

-- name: insert_token
INSERT INTO noetl.token (token_id, name, role, digest, created_at, expires_at, pools)
VALUES (%(token_id)s::bigint, %(name)s, %(role)s, %(digest)s, %(created_at)s, %(expires_at)s, %(pools)s)
ON CONFLICT DO NOTHING
RETURNING 1 AS done;

-- name: token_by_digest
SELECT
    token_id::text AS token_id, name, role, digest, created_at, expires_at, last_used_at, revoked_at, pools
FROM noetl.token
WHERE digest = %(digest)s;

-- name: tokens
SELECT
    token_id::text AS token_id, name, role, digest, created_at, expires_at, last_used_at, revoked_at, pools
FROM noetl.token
ORDER BY token.token_id;

-- name: use_token
UPDATE noetl.token SET last_used_at = %(now)s WHERE token_id = %(token_id)s::bigint RETURNING 1 AS done;

-- name: revoke_token
UPDATE noetl.token SET revoked_at = %(now)s
WHERE (name = %(identifier)s OR token_id::text = %(identifier)s) AND revoked_at IS NULL
RETURNING
    token_id::text AS token_id, name, role, digest, created_at, expires_at, last_used_at, revoked_at, pools;

-- name: insert_session
INSERT INTO noetl.session (digest, user_id, value, revision, expires_at)
VALUES (%(digest)s, %(user_id)s, %(value)s, 1, %(expires_at)s)
ON CONFLICT (digest) DO NOTHING
RETURNING 1 AS done;

-- name: session
SELECT digest, user_id, value, revision, expires_at FROM noetl.session
WHERE digest = %(digest)s AND expires_at > %(now)s;

-- name: sessions_of_user
SELECT digest, user_id, value, revision, expires_at FROM noetl.session
WHERE user_id = %(user_id)s AND expires_at > %(now)s
ORDER BY digest;

-- name: update_session
UPDATE noetl.session SET value = %(value)s, expires_at = %(expires_at)s, revision = revision + 1
WHERE digest = %(digest)s AND revision = %(revision)s
RETURNING revision;

-- name: delete_session
DELETE FROM noetl.session WHERE digest = %(digest)s RETURNING 1 AS done;

-- name: forget_sessions
DELETE FROM noetl.session WHERE expires_at <= %(expired_by)s RETURNING 1 AS done;

-- name: save_runtime
INSERT INTO noetl.runtime (kind, name, pool, slots, labels, protocol, version, started_at, last_beat)
VALUES (
    %(kind)s, %(name)s, %(pool)s, %(slots)s, %(labels)s, %(protocol)s, %(version)s, %(started_at)s,
    %(last_beat)s
)
ON CONFLICT (kind, name) DO UPDATE SET
    pool = excluded.pool,
    slots = excluded.slots,
    labels = excluded.labels,
    protocol = excluded.protocol,
    version = excluded.version,
    started_at = excluded.started_at,
    last_beat = excluded.last_beat;

-- name: beat_runtime
UPDATE noetl.runtime SET last_beat = greatest(last_beat, %(now)s)
WHERE kind = %(kind)s AND name = %(name)s
RETURNING 1 AS done;

-- name: runtimes
SELECT kind, name, pool, slots, labels, protocol, version, started_at, last_beat FROM noetl.runtime
WHERE (%(kind)s::text IS NULL OR kind = %(kind)s) AND (%(pool)s::text IS NULL OR pool = %(pool)s)
ORDER BY kind COLLATE "C", name COLLATE "C";

-- name: delete_runtime
DELETE FROM noetl.runtime WHERE kind = %(kind)s AND name = %(name)s RETURNING 1 AS done;

-- name: forget_runtimes
DELETE FROM noetl.runtime WHERE last_beat < %(silent_since)s RETURNING 1 AS done;
