-- Who may do what, and the secrets that playbooks name. Moments are seconds since 1970.

-- Credentials. `body` is encrypted with a key of its own, which stands in `data_key`, encrypted with the master
-- key `key_id`. `version` counts the changes of `body`; only the last body is kept.
CREATE TABLE credential (
    credential_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    tags TEXT NOT NULL,
    meta TEXT NOT NULL,
    key_id TEXT NOT NULL,
    data_key BLOB NOT NULL,
    body BLOB NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);

-- Credentials and tokens that were handed out lately, encrypted, and how often.
CREATE TABLE auth_cache (
    cache_key TEXT PRIMARY KEY,
    credential_name TEXT NOT NULL,
    credential_type TEXT NOT NULL,
    cache_type TEXT NOT NULL CHECK (cache_type IN ('secret', 'token')),
    scope_type TEXT NOT NULL CHECK (scope_type IN ('execution', 'global')),
    execution_id INTEGER,
    parent_execution_id INTEGER,
    data_encrypted BLOB NOT NULL,
    expires_at REAL NOT NULL,
    created_at REAL NOT NULL,
    accessed_at REAL NOT NULL,
    access_count INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX auth_cache_by_credential ON auth_cache (credential_name);
CREATE INDEX auth_cache_by_expiry ON auth_cache (expires_at);

-- Tokens of the API; `digest` is the SHA-256 of a text that is stored nowhere.
CREATE TABLE token (
    token_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    digest TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    expires_at REAL,
    last_used_at REAL,
    revoked_at REAL
);

-- A name may be given again once its token is revoked.
CREATE UNIQUE INDEX token_by_name ON token (name) WHERE revoked_at IS NULL;

-- Sessions, where there is no NATS to keep them; `digest` is the SHA-256 of the session's token.
CREATE TABLE session (
    digest TEXT PRIMARY KEY,
    user_id INTEGER NOT NULL,
    value BLOB NOT NULL,
    revision INTEGER NOT NULL,
    expires_at REAL NOT NULL
);

CREATE INDEX session_by_user ON session (user_id);
CREATE INDEX session_by_expiry ON session (expires_at);

-- Servers, pools and workers, and when each was last heard of.
CREATE TABLE runtime (
    kind TEXT NOT NULL CHECK (kind IN ('server', 'pool', 'worker')),
    name TEXT NOT NULL,
    pool TEXT,
    slots INTEGER NOT NULL,
    labels TEXT NOT NULL,
    protocol INTEGER NOT NULL,
    version TEXT NOT NULL,
    started_at REAL NOT NULL,
    last_beat REAL NOT NULL,
    PRIMARY KEY (kind, name)
);
