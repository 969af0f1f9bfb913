-- Every query of the registry on SQLite, each under its name. Parameters are named; ids leave as text.

-- name: insert_credential
INSERT INTO credential (
    credential_id, name, type, version, description, tags, meta, key_id, data_key, body, created_at, updated_at
)
VALUES (
    CAST(:credential_id AS INTEGER), :name, :type, :version, :description, :tags, :meta, :key_id, :data_key,
    :body, :created_at, :updated_at
)
ON CONFLICT DO NOTHING
RETURNING 1 AS done;

-- name: update_credential
-- Only if nobody has changed it since it was read.
UPDATE credential SET
    type = :type,
    version = :version,
    description = :description,
    tags = :tags,
    meta = :meta,
    key_id = :key_id,
    data_key = :data_key,
    body = :body,
    updated_at = :updated_at
WHERE credential_id = CAST(:credential_id AS INTEGER) AND version = :version - 1
RETURNING 1 AS done;

-- name: credential
-- By name or by id; no name looks like an id.
SELECT
    CAST(credential_id AS TEXT) AS credential_id, name, type, version, description, tags, meta, key_id, data_key,
    body, created_at, updated_at
FROM credential
WHERE name = :identifier OR CAST(credential_id AS TEXT) = :identifier;

-- name: credentials
SELECT
    CAST(credential_id AS TEXT) AS credential_id, name, type, version, description, tags, meta, key_id, data_key,
    body, created_at, updated_at
FROM credential
WHERE name > :after
    AND (:type IS NULL OR type = :type)
    AND (
        :text IS NULL
        OR instr(lower(name), lower(:text)) > 0
        OR instr(lower(description), lower(:text)) > 0
        OR instr(lower(tags), lower(:text)) > 0
    )
ORDER BY name
LIMIT :limit;

-- name: delete_credential
DELETE FROM credential WHERE credential_id = CAST(:credential_id AS INTEGER) RETURNING 1 AS done;

-- name: credentials_of_other_keys
SELECT
    CAST(credential_id AS TEXT) AS credential_id, name, type, version, description, tags, meta, key_id, data_key,
    body, created_at, updated_at
FROM credential
WHERE key_id <> :key_id AND name > :after
ORDER BY name
LIMIT :limit;

-- name: rewrap_credential
-- The body stays; only if it is still the one whose key was unwrapped.
UPDATE credential SET key_id = :key_id, data_key = :data_key
WHERE credential_id = CAST(:credential_id AS INTEGER) AND version = :version
RETURNING 1 AS done;

-- name: keep_cached
INSERT INTO auth_cache (
    cache_key, credential_name, credential_type, cache_type, scope_type, execution_id, parent_execution_id,
    data_encrypted, expires_at, created_at, accessed_at
)
VALUES (
    :cache_key, :credential_name, :credential_type, :cache_type, :scope_type, :execution_id,
    :parent_execution_id, :data_encrypted, :expires_at, :now, :now
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
UPDATE auth_cache SET accessed_at = :now, access_count = access_count + 1
WHERE cache_key = :cache_key AND expires_at > :now
RETURNING *;

-- name: cache_entries
SELECT * FROM auth_cache
WHERE :credential_name IS NULL OR credential_name = :credential_name
ORDER BY cache_key;

-- name: forget_cached
DELETE FROM auth_cache
WHERE (:credential_name IS NULL OR credential_name = :credential_name)
    AND (:expired_by IS NULL OR expires_at <= :expired_by)
RETURNING 1 AS done;

-- name: forget_cached_of
DELETE FROM auth_cache
WHERE execution_id IN (SELECT value FROM json_each(:execution_ids))
    OR parent_execution_id IN (SELECT value FROM json_each(:execution_ids))
RETURNING 1 AS done;

-- name: insert_token
INSERT INTO token (token_id, name, role, digest, created_at, expires_at, pools)
VALUES (CAST(:token_id AS INTEGER), :name, :role, :digest, :created_at, :expires_at, :pools)
ON CONFLICT DO NOTHING
RETURNING 1 AS done;

-- name: token_by_digest
SELECT
    CAST(token_id AS TEXT) AS token_id, name, role, digest, created_at, expires_at, last_used_at, revoked_at, pools
FROM token
WHERE digest = :digest;

-- name: tokens
SELECT
    CAST(token_id AS TEXT) AS token_id, name, role, digest, created_at, expires_at, last_used_at, revoked_at, pools
FROM token
ORDER BY token.token_id;

-- name: use_token
UPDATE token SET last_used_at = :now WHERE token_id = CAST(:token_id AS INTEGER) RETURNING 1 AS done;

-- name: revoke_token
UPDATE token SET revoked_at = :now
WHERE (name = :identifier OR CAST(token_id AS TEXT) = :identifier) AND revoked_at IS NULL
RETURNING
    CAST(token_id AS TEXT) AS token_id, name, role, digest, created_at, expires_at, last_used_at, revoked_at, pools;

-- name: insert_session
INSERT INTO session (digest, user_id, value, revision, expires_at)
VALUES (:digest, :user_id, :value, 1, :expires_at)
ON CONFLICT (digest) DO NOTHING
RETURNING 1 AS done;

-- name: session
SELECT digest, user_id, value, revision, expires_at FROM session WHERE digest = :digest AND expires_at > :now;

-- name: sessions_of_user
SELECT digest, user_id, value, revision, expires_at FROM session
WHERE user_id = :user_id AND expires_at > :now
ORDER BY digest;

-- name: update_session
UPDATE session SET value = :value, expires_at = :expires_at, revision = revision + 1
WHERE digest = :digest AND revision = :revision
RETURNING revision;

-- name: delete_session
DELETE FROM session WHERE digest = :digest RETURNING 1 AS done;

-- name: forget_sessions
DELETE FROM session WHERE expires_at <= :expired_by RETURNING 1 AS done;

-- name: save_runtime
INSERT INTO runtime (kind, name, pool, slots, labels, protocol, version, started_at, last_beat)
VALUES (:kind, :name, :pool, :slots, :labels, :protocol, :version, :started_at, :last_beat)
ON CONFLICT (kind, name) DO UPDATE SET
    pool = excluded.pool,
    slots = excluded.slots,
    labels = excluded.labels,
    protocol = excluded.protocol,
    version = excluded.version,
    started_at = excluded.started_at,
    last_beat = excluded.last_beat;

-- name: beat_runtime
UPDATE runtime SET last_beat = max(last_beat, :now) WHERE kind = :kind AND name = :name RETURNING 1 AS done;

-- name: runtimes
SELECT kind, name, pool, slots, labels, protocol, version, started_at, last_beat FROM runtime
WHERE (:kind IS NULL OR kind = :kind) AND (:pool IS NULL OR pool = :pool)
ORDER BY kind, name;

-- name: delete_runtime
DELETE FROM runtime WHERE kind = :kind AND name = :name RETURNING 1 AS done;

-- name: forget_runtimes
DELETE FROM runtime WHERE last_beat < :silent_since RETURNING 1 AS done;
