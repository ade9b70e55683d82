-- Times are milliseconds since the Unix epoch. Numbers for states: 0 queued, 2 paused,
-- 3 finished, 4 failed, 5 cancelled. 1 (running) is never in a job's row: a job is running while it
-- has a lease, so that a claim does not write the row.

-- Numbers of the store itself. `boot` is the newest boot number of a daemon. `synced` is written by
-- a synced commit that has nothing else to write. `revision` is the newest revision of a type.
-- `clock_offset` is how far the wall clock is ahead of the machine's clock since boot, for the boot
-- that `machine_run` identifies. `key_revision` is the newest revision of an API key, and
-- `tenant_revision` that of the settings of a tenant. `journal` is how far each journal has been
-- inserted; it is in this table, near `revision`, because most inserts write both.
CREATE TABLE meta (
    name  TEXT NOT NULL,
    id    INTEGER NOT NULL DEFAULT 0,
    value INTEGER NOT NULL,
    PRIMARY KEY (name, id)
) WITHOUT ROWID;
INSERT INTO meta (name, value)
VALUES ('boot', 0), ('synced', 0), ('revision', 0), ('machine_run', 0), ('clock_offset', 0),
       ('key_revision', 0), ('tenant_revision', 0);

CREATE TABLE sysid (
    sysid      INTEGER PRIMARY KEY,
    boot       INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    released   INTEGER NOT NULL,
    id_newest  INTEGER
);

-- What daemons say of themselves with their beats, and the jobs of their journals that were not in
-- the store then: `oldest` and `newest` are ids.
CREATE TABLE daemon (
    journal        INTEGER PRIMARY KEY,
    sysid          INTEGER NOT NULL,
    boot           INTEGER NOT NULL,
    beat_at        INTEGER NOT NULL,
    started_at     INTEGER NOT NULL,
    host           TEXT NOT NULL,
    version        TEXT NOT NULL,
    listen         TEXT NOT NULL,
    picking        INTEGER NOT NULL,
    running        INTEGER NOT NULL,
    jobs           INTEGER NOT NULL,
    bytes          INTEGER NOT NULL,
    oldest         INTEGER,
    newest         INTEGER,
    -- One in a line.
    layers_missing TEXT NOT NULL
);

-- Types are never removed, so that every process may cache their ids.
CREATE TABLE type (
    id         INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    suspended  INTEGER NOT NULL DEFAULT 0,
    handler_id INTEGER,
    claimed_at INTEGER,
    ready      INTEGER NOT NULL DEFAULT 0,
    deferred   INTEGER NOT NULL DEFAULT 0,
    running    INTEGER NOT NULL DEFAULT 0,
    paused     INTEGER NOT NULL DEFAULT 0,
    finished   INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0,
    cancelled  INTEGER NOT NULL DEFAULT 0,
    settings   TEXT,
    -- The front of the queue, written with the counters.
    head_rank   INTEGER,
    head_run_at INTEGER,
    head_tie    INTEGER,
    -- The front of the queue of its hidden jobs.
    hidden_rank   INTEGER,
    hidden_run_at INTEGER,
    hidden_tie    INTEGER,
    -- The `concurrency` of the settings.
    running_max INTEGER,
    -- The `rate` of the settings, and up to when it was spent, in nanoseconds.
    rate        REAL,
    spent       INTEGER NOT NULL DEFAULT 0,
    -- The next three are written only when they change, so that the indexes over them are not
    -- updated with the counters. `open`: a claim would get a job of this type.
    open        INTEGER NOT NULL DEFAULT 0,
    -- The `revision` of `meta` when the type last opened, or when its handler, settings or
    -- suspension last changed.
    rev         INTEGER,
    -- Whether it has a handler, settings or jobs, or is suspended. All other types were only
    -- mentioned once, and cost nothing.
    shown       INTEGER NOT NULL DEFAULT 0,
    -- Whether it has a handler; for indexes.
    handled     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
);
CREATE INDEX type_shown ON type (tenant, name) WHERE shown;
-- Changes since a revision, separately for types with and without a handler. Includes the tenant,
-- so that types of a tenant that has very many are skipped without reading the table. Closed types
-- stay in it: a read skips them, and closing a type does not write this index.
CREATE INDEX type_changed ON type (handled, rev, tenant) WHERE rev IS NOT NULL;
-- Open types by name: for the ring of tenants with types that a daemon can run, the ring of those
-- types within each tenant, and the types that workers ask for.
CREATE INDEX type_open ON type (handled, tenant, name, open) WHERE open;
-- Types with a limit.
CREATE INDEX type_limited ON type (tenant, name) WHERE running_max IS NOT NULL;
-- The most urgent job of all types of a tenant.
CREATE INDEX type_head ON type (tenant, head_rank, head_run_at, head_tie, name)
 WHERE head_rank IS NOT NULL AND suspended = 0;
-- The same of hidden jobs; few types have any.
CREATE INDEX type_hidden ON type (tenant, hidden_rank, hidden_run_at, hidden_tie, name)
 WHERE hidden_rank IS NOT NULL AND suspended = 0;

-- `parts` says what the job has in other tables, so that nothing is searched for in vain:
-- 1 payload, 2 piece, 4 result, 8 log, 16 progress, 32 has or had children, 64 hidden, 128 lent
-- (queued, but a worker has it), 256 has a row in `extra`, 512 has a parent. `then_name` is the
-- type, of the same tenant, of the job that follows and gets the result of this one. The payload is
-- the last column, so that the others are read without it.
CREATE TABLE job (
    id            INTEGER PRIMARY KEY,
    type_id       INTEGER NOT NULL,
    state         INTEGER NOT NULL,
    priority      INTEGER NOT NULL,
    run_at        INTEGER NOT NULL,
    due_at        INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    finished_at   INTEGER,
    expires_at    INTEGER,
    timeout_ms    INTEGER,
    token         INTEGER,
    last_code     INTEGER,
    last_status   INTEGER,
    purge_at      INTEGER,
    parts         INTEGER NOT NULL,
    payload_bytes INTEGER NOT NULL,
    unique_key    TEXT,
    then_name     TEXT,
    parent_id     INTEGER,
    payload       BLOB
);
-- For listings and requeues. A retry does not write it, because the state stays the same.
CREATE INDEX job_by_type ON job (type_id, state, id);
CREATE INDEX job_expiry ON job (expires_at) WHERE expires_at IS NOT NULL AND state < 3;
CREATE INDEX job_purge ON job (purge_at) WHERE purge_at IS NOT NULL;

-- Children and hidden jobs, with the state in their rows, to find them by parent and by type. They
-- are few. A table of their own instead of indexes over `job` costs other jobs nothing.
CREATE TABLE aside (
    id        INTEGER PRIMARY KEY,
    type_id   INTEGER NOT NULL,
    hidden    INTEGER NOT NULL,
    state     INTEGER NOT NULL,
    parent_id INTEGER
);
CREATE INDEX aside_by_parent ON aside (parent_id, state) WHERE parent_id IS NOT NULL;
CREATE INDEX aside_by_type ON aside (type_id, hidden, state, id);

CREATE TABLE extra (
    id          INTEGER PRIMARY KEY,
    repeat      TEXT,
    door_text   TEXT,
    run_at_text TEXT,
    order_key   INTEGER NOT NULL
);

-- Jobs that may run now, in claim order: `rank` is 1000 minus the priority, and among equally
-- urgent jobs the one that has been due the longest comes first. `tie` orders those that are due in
-- the same millisecond: twice their order key, plus one if they are lent. It is 0 for nearly all
-- jobs, and takes no space then.
CREATE TABLE ready (
    type_id INTEGER NOT NULL,
    rank    INTEGER NOT NULL,
    run_at  INTEGER NOT NULL,
    tie     INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (type_id, rank, run_at, tie, id)
) WITHOUT ROWID;

-- Hidden jobs that may run now; claims never see them. Hidden jobs that are not due are in
-- `deferred`, with 10000 added to their rank.
CREATE TABLE ready_hidden (
    type_id INTEGER NOT NULL,
    rank    INTEGER NOT NULL,
    run_at  INTEGER NOT NULL,
    tie     INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (type_id, rank, run_at, tie, id)
) WITHOUT ROWID;

-- Jobs that are not due yet, in the order in which they come due.
CREATE TABLE deferred (
    run_at  INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    type_id INTEGER NOT NULL,
    rank    INTEGER NOT NULL,
    tie     INTEGER NOT NULL,
    PRIMARY KEY (run_at, id)
) WITHOUT ROWID;

-- Queued jobs that are in none of the tables above: a claim met them, and their rows are damaged, or
-- they have expired. They count as deferred.
CREATE TABLE withheld (
    id      INTEGER PRIMARY KEY,
    type_id INTEGER NOT NULL
);

-- Running jobs. `expires_at` is NULL if the lease lasts as long as its owner's sysid, so that a
-- daemon's beat is one write, however many jobs it runs.
CREATE TABLE lease (
    id         INTEGER PRIMARY KEY,
    type_id    INTEGER NOT NULL,
    owner      INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    expires_at INTEGER,
    attempt    INTEGER NOT NULL,
    started_at INTEGER NOT NULL
);
CREATE INDEX lease_expiry ON lease (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX lease_on_beat ON lease (owner, id) WHERE expires_at IS NULL;

-- Unique keys of jobs that have not ended.
CREATE TABLE unique_key (
    type_id INTEGER NOT NULL,
    key     TEXT NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (type_id, key)
) WITHOUT ROWID;

CREATE TABLE payload (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);

CREATE TABLE piece (
    id       INTEGER NOT NULL,
    position INTEGER NOT NULL,
    data     BLOB NOT NULL,
    UNIQUE (id, position)
);

-- Payloads whose pieces arrived before their job, and when. They are removed if the job never
-- arrives.
CREATE TABLE piece_waiting (
    id     INTEGER PRIMARY KEY,
    put_at INTEGER NOT NULL
);
CREATE INDEX piece_waiting_since ON piece_waiting (put_at);

CREATE TABLE result (
    id   INTEGER PRIMARY KEY,
    data TEXT NOT NULL
);

-- A rerun starts again with attempt 1, so attempts are ordered by `seq`.
CREATE TABLE log (
    seq      INTEGER PRIMARY KEY,
    id       INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    text     TEXT NOT NULL
);
CREATE INDEX log_by_job ON log (id, seq);

-- Of the attempt with this token; a later claim makes it outdated without a write.
CREATE TABLE progress (
    id      INTEGER PRIMARY KEY,
    token   INTEGER NOT NULL,
    percent REAL NOT NULL,
    message TEXT NOT NULL,
    at      INTEGER NOT NULL
);

CREATE TABLE idempotency (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    ids         BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

CREATE TABLE handler (
    id          INTEGER PRIMARY KEY,
    type_id     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    lang        TEXT NOT NULL,
    body        TEXT NOT NULL,
    before      TEXT,
    before_each TEXT,
    after_each  TEXT,
    eid         TEXT,
    options     TEXT NOT NULL
);
CREATE INDEX handler_by_type ON handler (type_id, id);

-- API keys: the public id, and the SHA-256 of the secret. `rev` is the `key_revision` of `meta` when
-- the key was put, revoked or rotated last.
CREATE TABLE api_key (
    id           TEXT PRIMARY KEY,
    digest       BLOB NOT NULL,
    role         TEXT NOT NULL,
    tenant       TEXT,
    name         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER,
    rev          INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX api_key_changed ON api_key (rev);
CREATE INDEX api_key_by_tenant ON api_key (tenant, id) WHERE tenant IS NOT NULL;

-- The audit, in the order in which it is listed. `status` is NULL until the act is answered. `count`
-- is the number of refusals that share an entry, the last of which was at `last_at`.
CREATE TABLE audit (
    at         INTEGER NOT NULL,
    id         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    key_id     TEXT,
    role       TEXT,
    address    TEXT,
    action     TEXT NOT NULL,
    tenant     TEXT,
    type_name  TEXT,
    subject_id TEXT,
    detail     TEXT,
    status     INTEGER,
    reason     TEXT,
    count      INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    PRIMARY KEY (at, id)
) WITHOUT ROWID;
CREATE INDEX audit_by_tenant ON audit (tenant, at, id) WHERE tenant IS NOT NULL;
CREATE INDEX audit_by_key ON audit (key_id, at, id) WHERE key_id IS NOT NULL;

-- Secrets of handlers: sealed, so that nothing here can be read without the key file.
CREATE TABLE secret (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    sealed     BLOB NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Settings of tenants, as JSON. `rev` is the `tenant_revision` of `meta` when they were put last.
CREATE TABLE tenant (
    name     TEXT PRIMARY KEY,
    settings TEXT NOT NULL,
    rev      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tenant_changed ON tenant (rev);

-- A job as callers see it.
CREATE VIEW job_now AS
SELECT j.id,
       t.tenant,
       t.name,
       CASE WHEN l.id IS NULL THEN j.state ELSE 1 END AS state,
       j.priority,
       j.run_at,
       j.due_at,
       coalesce(l.attempt, j.attempt) AS attempt,
       j.created_at,
       coalesce(l.started_at, j.started_at) AS started_at,
       j.finished_at,
       j.expires_at,
       j.timeout_ms,
       l.owner,
       coalesce(l.token, j.token) AS token,
       coalesce(l.expires_at, s.expires_at) AS lease_expires_at,
       l.expires_at IS NULL AS lease_on_beat,
       j.last_code,
       j.last_status,
       j.unique_key,
       j.payload_bytes,
       j.type_id,
       j.parts,
       j.then_name,
       j.parent_id
  FROM job j
  JOIN type t ON t.id = j.type_id
  LEFT JOIN lease l ON l.id = j.id
  LEFT JOIN sysid s ON s.sysid = l.owner AND l.expires_at IS NULL;
