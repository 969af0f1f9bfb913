-- Who may do what, and the secrets that playbooks name.

-- Credentials. `body` is encrypted with a key of its own, which stands in `data_key`, encrypted with the master
-- key `key_id`. `version` counts the changes of `body`; only the last body is kept.
-- `json`, not `jsonb`: it gives back what it was given, NUL included.
CREATE TABLE noetl.credential (
    credential_id BIGINT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    tags JSON NOT NULL,
    meta JSON NOT NULL,
    key_id TEXT NOT NULL,
    data_key BYTEA NOT NULL,
    body BYTEA NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

-- Credentials and tokens that were handed out lately, encrypted, and how often.
CREATE TABLE noetl.auth_cache (
    cache_key TEXT PRIMARY KEY,
    credential_name TEXT NOT NULL,
    credential_type TEXT NOT NULL,
    cache_type TEXT NOT NULL CHECK (cache_type IN ('secret', 'token')),
    scope_type TEXT NOT NULL CHECK (scope_type IN ('execution', 'global')),
    execution_id BIGINT,
    parent_execution_id BIGINT,
    data_encrypted BYTEA NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    accessed_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    access_count INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX auth_cache_by_credential ON noetl.auth_cache (credential_name);
CREATE INDEX auth_cache_by_expiry ON noetl.auth_cache (expires_at);

-- Tokens of the API; `digest` is the SHA-256 of a text that is stored nowhere.
CREATE TABLE noetl.token (
    token_id BIGINT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    created_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ
);

-- A name may be given again once its token is revoked.
CREATE UNIQUE INDEX token_by_name ON noetl.token (name) WHERE revoked_at IS NULL;

-- Sessions, where there is no NATS to keep them; `digest` is the SHA-256 of the session's token.
CREATE TABLE noetl.session (
    digest TEXT PRIMARY KEY,
    user_id BIGINT NOT NULL,
    value BYTEA NOT NULL,
    revision INTEGER NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX session_by_user ON noetl.session (user_id);
CREATE INDEX session_by_expiry ON noetl.session (expires_at);

-- Servers, pools and workers, and when each was last heard of. Beats change nothing that is indexed, so they
-- can stay in their page.
CREATE TABLE noetl.runtime (
    kind TEXT NOT NULL CHECK (kind IN ('server', 'pool', 'worker')),
    name TEXT NOT NULL,
    pool TEXT,
    slots INTEGER NOT NULL,
    labels JSON NOT NULL,
    protocol INTEGER NOT NULL,
    version TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    last_beat TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 70);
