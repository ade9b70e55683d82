-- Parents and children, what only few jobs have, mocked jobs, and a way to the most urgent job of
-- all types of a tenant. More of `parts`: 32 has or had children, 64 mocked, 128 lent (queued, and
-- with a worker), 256 has a row in `extra`, 512 has a parent. Nobody looks for what these do not
-- name, and no index of `job` is for them, so that all other jobs are as cheap as before.
ALTER TABLE job ADD COLUMN parent_id INTEGER;

-- Children and mocked jobs, with the state in their rows, to be found by parent and by type.
CREATE TABLE aside (
    id        INTEGER PRIMARY KEY,
    type_id   INTEGER NOT NULL,
    mock      INTEGER NOT NULL,
    state     INTEGER NOT NULL,
    parent_id INTEGER
);
CREATE INDEX aside_by_parent ON aside (parent_id, state) WHERE parent_id IS NOT NULL;
CREATE INDEX aside_by_type ON aside (type_id, mock, state, id);

CREATE TABLE extra (
    id          INTEGER PRIMARY KEY,
    repeat      TEXT,
    retry_after TEXT,
    next_run    TEXT
);

-- Among equally urgent jobs, the one that has been due the longest goes first. `tie` is for those
-- that are due in the same millisecond; it is 0 for all but a few, and takes no space then.
CREATE TABLE ready_by_time (
    type_id INTEGER NOT NULL,
    rank    INTEGER NOT NULL,
    run_at  INTEGER NOT NULL,
    tie     INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (type_id, rank, run_at, tie, id)
) WITHOUT ROWID;
INSERT INTO ready_by_time (type_id, rank, run_at, tie, id)
SELECT type_id, rank, run_at, 0, id FROM ready;
DROP TABLE ready;
ALTER TABLE ready_by_time RENAME TO ready;
ALTER TABLE deferred ADD COLUMN tie INTEGER NOT NULL DEFAULT 0;

-- Mocked jobs that may run now: claims never see them. Those that wait for their time are in
-- `deferred`, with a rank that is larger by 10000.
CREATE TABLE ready_mock (
    type_id INTEGER NOT NULL,
    rank    INTEGER NOT NULL,
    run_at  INTEGER NOT NULL,
    tie     INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (type_id, rank, run_at, tie, id)
) WITHOUT ROWID;

-- The front of a type's queue, written with its counters.
ALTER TABLE type ADD COLUMN head_rank INTEGER;
ALTER TABLE type ADD COLUMN head_run_at INTEGER;
ALTER TABLE type ADD COLUMN head_tie INTEGER;
UPDATE type
   SET (head_rank, head_run_at, head_tie) =
       (SELECT rank, run_at, tie FROM ready
         WHERE type_id = type.id ORDER BY rank, run_at, tie LIMIT 1);
CREATE INDEX type_head ON type (tenant, head_rank, head_run_at, head_tie, name)
 WHERE head_rank IS NOT NULL AND suspended = 0;

DROP VIEW job_now;
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
       l.expires_at AS lease_expires_at,
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
  LEFT JOIN lease l ON l.id = j.id;
