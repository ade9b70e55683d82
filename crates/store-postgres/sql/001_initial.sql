-- Times are milliseconds since the Unix epoch. Numbers for states: 0 queued, 2 paused,
-- 3 finished, 4 failed, 5 cancelled. 1 (running) is never in a job's row: a job is running while it
-- has a lease, so that a claim does not write the row. Text that may contain NUL is bytea. Names are
-- compared byte by byte. All names are found by the search path, which every transaction sets.

-- The store's time. Tests set their own clock for a transaction.
CREATE FUNCTION now_ms() RETURNS int8 LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(
        nullif(current_setting('windlass.now_ms', true), '')::int8,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::int8)
$$;

-- Numbers of the store itself. `boot` is the newest boot number of a daemon. `synced` is written by
-- a synced commit that has nothing else to write. `clock` is how often the server's clock was seen
-- to be set. `key_revision` is the newest revision of an API key, and
-- `tenant_revision` that of the settings of a tenant.
CREATE TABLE meta (
    name  text COLLATE "C" PRIMARY KEY,
    value int8 NOT NULL
);
INSERT INTO meta (name, value)
VALUES ('boot', 0), ('synced', 0), ('clock', 0), ('key_revision', 0), ('tenant_revision', 0);

-- The newest revision of a type.
CREATE SEQUENCE revision MINVALUE 0 START 0;
SELECT nextval('revision');

-- Has a row unless the server crashed, or another one took its place: then it is empty, because it
-- is not logged, and relaxed commits may have been lost. Whoever finds it empty raises `revision`
-- beyond every number that was given before.
CREATE UNLOGGED TABLE alive (
    one bool PRIMARY KEY CHECK (one)
);
INSERT INTO alive VALUES (true);

-- How far each journal has been inserted: one row for each. A new position is a new row, because
-- versions of the same one would slow down every look at it while a long transaction keeps them.
CREATE TABLE journal (
    journal  int8 NOT NULL,
    position int8 NOT NULL,
    PRIMARY KEY (journal, position)
);

CREATE TABLE sysid (
    sysid      int4 PRIMARY KEY,
    boot       int8 NOT NULL,
    expires_at int8 NOT NULL,
    released   bool NOT NULL,
    id_newest  int8
);

-- What daemons say of themselves with their beats, and the jobs of their journals that were not in
-- the store then: `oldest` and `newest` are ids.
CREATE TABLE daemon (
    journal        int8 PRIMARY KEY,
    sysid          int4 NOT NULL,
    boot           int8 NOT NULL,
    beat_at        int8 NOT NULL,
    started_at     int8 NOT NULL,
    host           text NOT NULL,
    version        text NOT NULL,
    listen         text NOT NULL,
    picking        bool NOT NULL,
    running        int8 NOT NULL,
    jobs           int8 NOT NULL,
    bytes          int8 NOT NULL,
    oldest         int8,
    newest         int8,
    layers_missing text[] NOT NULL
);

-- Types are never removed.
CREATE TABLE type (
    id          int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    suspended   bool NOT NULL DEFAULT false,
    handler_id  int8,
    -- Within a second.
    claimed_at  int8,
    settings    text,
    -- The `concurrency` of the settings.
    running_max int4,
    -- The `rate` of the settings, and up to when it was spent, in nanoseconds.
    rate        float8,
    spent       int8 NOT NULL DEFAULT 0,
    -- False if it certainly has no ready jobs. It may be true without any: that costs an empty
    -- claim, which sets it to false.
    open        bool NOT NULL DEFAULT false,
    -- The `revision` when it last opened, or when its handler, settings or suspension last changed.
    rev         int8 NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
) WITH (fillfactor = 50);
-- Changes since a revision, separately for types with and without a handler.
CREATE INDEX type_changed ON type ((handler_id IS NOT NULL), rev) WHERE open;
-- Open types by name: for the ring of tenants with types that a daemon can run, the ring of those
-- types within each tenant, and the types that workers ask for.
CREATE INDEX type_open ON type ((handler_id IS NOT NULL), tenant, name) WHERE open;
-- Types with a limit.
CREATE INDEX type_limited ON type (tenant, name) WHERE running_max IS NOT NULL;

-- `parts` says what the job has in other tables, so that nothing is searched for in vain:
-- 2 piece, 4 result, 8 log, 16 progress, 32 has or had children, 64 hidden, 128 lent (queued, but a
-- worker has it), 256 has a row in `extra`. `then_name` is the type, of the same tenant, of the job
-- that follows and gets the result of this one. A large payload is stored apart from its row by the
-- server, and an update of the row does not write it again.
CREATE TABLE job (
    id            int8 PRIMARY KEY,
    run_at        int8 NOT NULL,
    due_at        int8 NOT NULL,
    created_at    int8 NOT NULL,
    payload_bytes int8 NOT NULL,
    type_id       int4 NOT NULL,
    parts         int4 NOT NULL,
    attempt       int4 NOT NULL,
    state         int2 NOT NULL,
    priority      int2 NOT NULL,
    last_code     int2,
    last_status   int2,
    started_at    int8,
    finished_at   int8,
    expires_at    int8,
    timeout_ms    int8,
    token         int8,
    purge_at      int8,
    parent_id     int8,
    unique_key    bytea,
    then_name     text COLLATE "C",
    payload       bytea
);
ALTER TABLE job ALTER COLUMN payload SET STORAGE EXTERNAL;
-- For listings and requeues.
CREATE INDEX job_by_type ON job (type_id, state, id);
CREATE INDEX job_expiry ON job (expires_at) WHERE expires_at IS NOT NULL AND state < 3;
CREATE INDEX job_purge ON job (purge_at) WHERE purge_at IS NOT NULL;
-- For counts.
CREATE INDEX job_paused ON job (type_id) WHERE state = 2;
-- Children and hidden jobs are few; other jobs are not in these indexes.
CREATE INDEX job_by_parent ON job (parent_id, state, id) WHERE parent_id IS NOT NULL;
CREATE INDEX job_hidden ON job (type_id, state, id) WHERE parts & 64 <> 0;

CREATE TABLE extra (
    id          int8 PRIMARY KEY,
    order_key   int8 NOT NULL,
    repeat      bytea,
    door_text   bytea,
    run_at_text bytea
);

-- Jobs that may run now, in claim order: `rank` is 1000 minus the priority, and among equally
-- urgent jobs the one that has been due the longest comes first. `tie` orders those that are due in
-- the same millisecond: twice their order key, plus one if they are lent. Hidden jobs have 10000
-- added to their rank; claims never see them. Vacuumed early, because claims pass the rows that
-- were deleted behind the bounds in `front`.
CREATE TABLE ready (
    type_id int4 NOT NULL,
    rank    int4 NOT NULL,
    run_at  int8 NOT NULL,
    tie     int8 NOT NULL,
    id      int8 NOT NULL,
    PRIMARY KEY (type_id, rank, run_at, tie, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Where the queue of a type begins. A transaction that is left open keeps the server from removing
-- deleted rows, and a claim that began with the first of them would pass all of them. So each type
-- may have bounds: in `ready`, no job of this rank comes before it. `deferred` has one too, as type
-- -1 and rank 0. Whoever adds a job before a bound lowers it in the same transaction; `raise_front`
-- raises bounds now and then. The arrays are segments of the queue: each begins with a place, the
-- first one with the beginning, and ends before the rank in `untils`.
--
-- The newest row of a type counts; it has only one that is not deleted, but many that are.
CREATE TABLE front (
    type_id int4 NOT NULL,
    seq     int8 NOT NULL,
    ranks   int4[] NOT NULL,
    times   int8[] NOT NULL,
    ties    int8[] NOT NULL,
    ids     int8[] NOT NULL,
    untils  int4[] NOT NULL,
    PRIMARY KEY (type_id, seq)
) WITH (autovacuum_vacuum_cost_delay = 0);

-- The segments of a type's queue, in order.
CREATE FUNCTION segments(of_type int4)
RETURNS TABLE (rank int4, run_at int8, tie int8, id int8, until int4) LANGUAGE sql STABLE AS $$
    SELECT s.rank, s.run_at, s.tie, s.id, s.until
      FROM (VALUES (true)) AS always (one)
      LEFT JOIN LATERAL (
           SELECT * FROM front WHERE front.type_id = of_type ORDER BY front.seq DESC LIMIT 1
           ) AS f ON true
     CROSS JOIN LATERAL unnest(coalesce(f.ranks, '{0}'),
                               coalesce(f.times, '{-9223372036854775808}'),
                               coalesce(f.ties, '{-9223372036854775808}'),
                               coalesce(f.ids, '{-9223372036854775808}'),
                               coalesce(f.untils, '{10000}')) AS s (rank, run_at, tie, id, until)
$$;

-- Jobs that are not due yet, in the order in which they come due.
CREATE TABLE deferred (
    run_at  int8 NOT NULL,
    id      int8 NOT NULL,
    tie     int8 NOT NULL,
    type_id int4 NOT NULL,
    rank    int4 NOT NULL,
    PRIMARY KEY (run_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deferred_by_type ON deferred (type_id);

-- How many jobs of each type have ended, by their state: the sum of both tables. A transaction adds
-- a row to `ended_delta`, so that none waits for another; they are summed up in the background.
CREATE TABLE ended_count (
    type_id   int4 PRIMARY KEY,
    finished  int8 NOT NULL,
    failed    int8 NOT NULL,
    cancelled int8 NOT NULL
);
CREATE TABLE ended_delta (
    type_id   int4 NOT NULL,
    seq       int8 GENERATED ALWAYS AS IDENTITY,
    finished  int8 NOT NULL,
    failed    int8 NOT NULL,
    cancelled int8 NOT NULL,
    PRIMARY KEY (type_id, seq)
) WITH (autovacuum_vacuum_cost_delay = 0);

-- Queued jobs that are in none of the tables above: a claim met them, and their rows are damaged, or
-- they have expired. They count as deferred.
CREATE TABLE withheld (
    id      int8 PRIMARY KEY,
    type_id int4 NOT NULL
);

-- Running jobs. `expires_at` is NULL if the lease lasts as long as its owner's sysid of that `boot`,
-- so that a daemon's beat is one write, however many jobs it runs.
CREATE TABLE lease (
    id         int8 PRIMARY KEY,
    token      int8 NOT NULL,
    expires_at int8,
    started_at int8 NOT NULL,
    boot       int8 NOT NULL,
    type_id    int4 NOT NULL,
    attempt    int4 NOT NULL,
    owner      int4 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_by_type ON lease (type_id);
CREATE INDEX lease_expiry ON lease (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX lease_on_beat ON lease (owner, id) WHERE expires_at IS NULL;

-- Unique keys of jobs that have not ended.
CREATE TABLE unique_key (
    type_id int4 NOT NULL,
    key     bytea NOT NULL,
    id      int8 NOT NULL,
    PRIMARY KEY (type_id, key)
);

CREATE TABLE piece (
    id       int8 NOT NULL,
    position int4 NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (id, position)
);
ALTER TABLE piece ALTER COLUMN data SET STORAGE EXTERNAL;

-- Payloads whose pieces arrived before their job, and when. They are removed if the job never
-- arrives.
CREATE TABLE piece_waiting (
    id     int8 PRIMARY KEY,
    put_at int8 NOT NULL
);
CREATE INDEX piece_waiting_since ON piece_waiting (put_at);

CREATE TABLE result (
    id   int8 PRIMARY KEY,
    data text NOT NULL
);

-- A rerun starts again with attempt 1, so attempts are ordered by `seq`.
CREATE TABLE log (
    seq      int8 GENERATED ALWAYS AS IDENTITY,
    id       int8 NOT NULL,
    ended_at int8 NOT NULL,
    attempt  int4 NOT NULL,
    text     bytea NOT NULL,
    PRIMARY KEY (id, seq)
);

-- Of the attempt with this token; a later claim makes it outdated without a write.
CREATE TABLE progress (
    id      int8 PRIMARY KEY,
    token   int8 NOT NULL,
    percent float8 NOT NULL,
    at      int8 NOT NULL,
    message bytea NOT NULL
);

CREATE TABLE idempotency (
    tenant      text COLLATE "C" NOT NULL,
    key         bytea NOT NULL,
    fingerprint int8 NOT NULL,
    expires_at  int8 NOT NULL,
    ids         int8[] NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

CREATE TABLE handler (
    id          int8 PRIMARY KEY,
    type_id     int4 NOT NULL,
    created_at  int8 NOT NULL,
    lang        text NOT NULL,
    body        bytea NOT NULL,
    before      bytea,
    before_each bytea,
    after_each  bytea,
    eid         bytea,
    options     text NOT NULL
);
CREATE INDEX handler_by_type ON handler (type_id, id);

-- API keys: the public id, and the SHA-256 of the secret. `rev` is the `key_revision` of `meta` when
-- the key was put, revoked or rotated last.
CREATE TABLE api_key (
    id           text COLLATE "C" PRIMARY KEY,
    digest       bytea NOT NULL,
    role         text NOT NULL,
    tenant       text COLLATE "C",
    name         text NOT NULL,
    created_at   int8 NOT NULL,
    expires_at   int8,
    last_used_at int8,
    revoked_at   int8,
    rev          int8 NOT NULL
);
CREATE INDEX api_key_changed ON api_key (rev);
CREATE INDEX api_key_by_tenant ON api_key (tenant, id) WHERE tenant IS NOT NULL;

-- The audit, in the order in which it is listed. `status` is NULL until the act is answered. `count`
-- is the number of refusals that share an entry, the last of which was at `last_at`.
CREATE TABLE audit (
    at         int8 NOT NULL,
    id         int8 NOT NULL,
    actor      text NOT NULL,
    key_id     text COLLATE "C",
    role       text,
    address    text,
    action     text NOT NULL,
    tenant     text COLLATE "C",
    type_name  text,
    subject_id text,
    detail     text,
    status     int4,
    reason     text,
    count      int8 NOT NULL,
    last_at    int8 NOT NULL,
    PRIMARY KEY (at, id)
);
CREATE INDEX audit_by_tenant ON audit (tenant, at, id) WHERE tenant IS NOT NULL;
CREATE INDEX audit_by_key ON audit (key_id, at, id) WHERE key_id IS NOT NULL;

-- Secrets of handlers: sealed, so that nothing here can be read without the key file.
CREATE TABLE secret (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    version    int8 NOT NULL,
    updated_at int8 NOT NULL,
    sealed     bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Settings of tenants, as JSON. `rev` is the `tenant_revision` of `meta` when they were put last.
CREATE TABLE tenant (
    name     text COLLATE "C" PRIMARY KEY,
    settings text NOT NULL,
    rev      int8 NOT NULL
);
CREATE INDEX tenant_changed ON tenant (rev);

-- A job as callers see it. A lease on the beat of a sysid that now has another boot has expired.
CREATE VIEW job_now AS
SELECT j.id,
       t.tenant,
       t.name,
       CASE WHEN l.id IS NULL THEN j.state ELSE 1::int2 END AS state,
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
       coalesce(l.expires_at, s.expires_at, l.started_at) AS lease_expires_at,
       l.expires_at IS NULL AS lease_on_beat,
       j.last_code,
       j.last_status,
       j.unique_key,
       j.payload_bytes,
       j.type_id,
       j.parts,
       j.then_name,
       j.parent_id,
       e.order_key,
       e.repeat,
       e.door_text,
       e.run_at_text
  FROM job j
  JOIN type t ON t.id = j.type_id
  LEFT JOIN lease l ON l.id = j.id
  LEFT JOIN sysid s ON s.sysid = l.owner AND s.boot = l.boot
  LEFT JOIN extra e ON e.id = j.id AND j.parts & 256 <> 0;

-- Advisory locks of this schema have its oid as their class, and the id of a type as their number.
-- The lock of a type is held shared by transactions that make jobs of it ready, and exclusively by
-- one that closes it or raises its bounds. Number -1 stands for `deferred`. Number 0 is held shared
-- by transactions that raise a revision, from before they take its number until they end. Number -2
-- is held by the one that sums up counts.
CREATE FUNCTION lock_class() RETURNS int4 LANGUAGE sql STABLE AS $$
    SELECT quote_ident(current_schema())::regnamespace::oid::int4
$$;

-- The lock of a type. Types share a bounded number of locks, because the server has room for few:
-- that of two types is the same now and then, which costs a wait, and no more.
CREATE FUNCTION type_lock(of_type int4) RETURNS int4 LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN of_type > 0 THEN 1 + (of_type & 1023) ELSE of_type END
$$;

-- Waits for the transactions that have raised revisions and not ended. Others that are about to
-- raise one wait behind it for as long. The lock belongs to the transaction, so that it never
-- outlives it, and is released by undoing the block.
CREATE FUNCTION await_revisions() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class(), 0);
    RAISE SQLSTATE 'WL001';
EXCEPTION
    WHEN SQLSTATE 'WL001' THEN NULL;
END
$$;

-- Replaces the bounds of a type, which are sorted by rank. The caller keeps others from doing so.
CREATE FUNCTION put_front(of_type int4, before int8, bound_ranks int4[], bound_times int8[],
                          bound_ties int8[], bound_ids int8[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    least_value CONSTANT int8 := -9223372036854775808;
BEGIN
    DELETE FROM front WHERE type_id = of_type AND seq = before;
    INSERT INTO front (type_id, seq, ranks, times, ties, ids, untils)
    VALUES (of_type, coalesce(before, 0) + 1, 0 || bound_ranks, least_value || bound_times,
            least_value || bound_ties, least_value || bound_ids, bound_ranks || 10000);
END
$$;

-- A job was added at this place: the bound of its rank must not be behind it. The caller holds the
-- shared lock of the type. Those that lower the bounds of a type wait for each other.
CREATE FUNCTION lower_front(of_type int4, to_rank int4, to_time int8, to_tie int8, to_id int8)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old front;
BEGIN
    PERFORM pg_advisory_xact_lock((lock_class()::int8 << 32) + of_type);
    SELECT * INTO old FROM front WHERE type_id = of_type ORDER BY seq DESC LIMIT 1;
    PERFORM put_front(of_type, old.seq, array_agg(b.rank ORDER BY b.rank),
                      array_agg(CASE WHEN b.lower THEN to_time ELSE b.run_at END ORDER BY b.rank),
                      array_agg(CASE WHEN b.lower THEN to_tie ELSE b.tie END ORDER BY b.rank),
                      array_agg(CASE WHEN b.lower THEN to_id ELSE b.id END ORDER BY b.rank))
       FROM (SELECT o.*, o.rank = to_rank
                         AND (o.run_at, o.tie, o.id) > (to_time, to_tie, to_id) AS lower
               FROM unnest(old.ranks[2:], old.times[2:], old.ties[2:], old.ids[2:])
                    AS o (rank, run_at, tie, id)) AS b;
END
$$;

-- All jobs before these places, one for each of some ranks, seem to have left the queue. Raises the
-- bounds up to there, or up to the first job that has not. Waits for transactions that are making
-- jobs of the type ready: those that come later see the new bounds, and lower them if necessary.
CREATE FUNCTION raise_front(of_type int4, to_ranks int4[], to_times int8[], to_ties int8[],
                            to_ids int8[], ranks_max int4)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old front;
BEGIN
    PERFORM pg_advisory_xact_lock(lock_class(), type_lock(of_type));
    SELECT * INTO old FROM front WHERE type_id = of_type ORDER BY seq DESC LIMIT 1;
    PERFORM put_front(of_type, old.seq, array_agg(k.rank ORDER BY k.rank),
                      array_agg(k.run_at ORDER BY k.rank), array_agg(k.tie ORDER BY k.rank),
                      array_agg(k.id ORDER BY k.rank))
       FROM (
          WITH bound AS (
              SELECT * FROM unnest(old.ranks[2:], old.times[2:], old.ties[2:], old.ids[2:])
                            AS o (rank, run_at, tie, id)
          ), raised AS (
              SELECT w.rank, coalesce(f.run_at, w.run_at) AS run_at, coalesce(f.tie, w.tie) AS tie,
                     coalesce(f.id, w.id) AS id
                FROM unnest(to_ranks, to_times, to_ties, to_ids) AS w (rank, run_at, tie, id)
                LEFT JOIN bound b ON b.rank = w.rank
                LEFT JOIN LATERAL (
                     (SELECT r.run_at, r.tie, r.id FROM ready r
                       WHERE of_type > 0 AND r.type_id = of_type AND r.rank = w.rank
                         AND (r.run_at, r.tie, r.id) >= (coalesce(b.run_at, -9223372036854775808),
                                                         coalesce(b.tie, -9223372036854775808),
                                                         coalesce(b.id, -9223372036854775808))
                         AND (r.run_at, r.tie, r.id) < (w.run_at, w.tie, w.id)
                       ORDER BY r.run_at, r.tie, r.id LIMIT 1)
                     UNION ALL
                     (SELECT d.run_at, 0, d.id FROM deferred d
                       WHERE of_type = -1
                         AND (d.run_at, d.id) >= (coalesce(b.run_at, -9223372036854775808),
                                                  coalesce(b.id, -9223372036854775808))
                         AND (d.run_at, d.id) < (w.run_at, w.id)
                       ORDER BY d.run_at, d.id LIMIT 1)
                     ) AS f ON true
               WHERE b.rank IS NULL OR (b.run_at, b.tie, b.id) < (w.run_at, w.tie, w.id)
          ), kept AS (
              SELECT every.*
                FROM (SELECT r.*, true AS new FROM raised r
                      UNION ALL
                      SELECT b.*, false FROM bound b WHERE b.rank NOT IN (SELECT rank FROM raised))
                     AS every
               ORDER BY every.new DESC, every.rank LIMIT ranks_max
          )
          SELECT * FROM kept
       ) AS k
     HAVING bool_or(k.new);
END
$$;

-- Called before the commit of a transaction that made jobs of these types ready (`made_ready`), or
-- that ended leases of these types, so that their limit may allow others (`freed`). Opens them.
-- Types that are open already, as nearly all are, cost nothing but the shared lock. The `low_...`
-- are the first places at which it added jobs, for each type and rank. Returns whether a type has a
-- new revision.
CREATE FUNCTION announce(made_ready int4[], freed int4[], low_types int4[], low_ranks int4[],
                         low_times int8[], low_ties int8[], low_ids int8[])
RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
    low record;
BEGIN
    IF low_types <> '{}' THEN
        PERFORM pg_advisory_xact_lock_shared(lock_class(), l)
           FROM (SELECT DISTINCT type_lock(t) AS l FROM unnest(low_types) t ORDER BY l) AS sorted;
        FOR low IN
            SELECT n.* FROM unnest(low_types, low_ranks, low_times, low_ties, low_ids)
                            AS n (type_id, rank, run_at, tie, id)
             WHERE EXISTS (SELECT FROM segments(n.type_id) s
                            WHERE s.rank = n.rank
                              AND (s.run_at, s.tie, s.id) > (n.run_at, n.tie, n.id))
             ORDER BY n.type_id, n.rank
        LOOP
            PERFORM lower_front(low.type_id, low.rank, low.run_at, low.tie, low.id);
        END LOOP;
    END IF;
    PERFORM FROM type
      WHERE (id = ANY (made_ready) AND NOT open)
         OR (id = ANY (freed) AND open AND running_max IS NOT NULL);
    IF FOUND THEN
        PERFORM pg_advisory_xact_lock_shared(lock_class(), 0);
        PERFORM FROM type WHERE id = ANY (made_ready || freed) ORDER BY id FOR NO KEY UPDATE;
        UPDATE type SET open = true, rev = nextval('revision')
         WHERE (id = ANY (made_ready) AND NOT open)
            OR (id = ANY (freed) AND open AND running_max IS NOT NULL);
        RETURN true;
    END IF;
    RETURN false;
END
$$;

-- The handler, the settings or the suspension of a type changed.
CREATE FUNCTION raise_revision(changed int4[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_class(), 0);
    PERFORM FROM type WHERE id = ANY (changed) ORDER BY id FOR NO KEY UPDATE;
    UPDATE type SET rev = nextval('revision') WHERE id = ANY (changed);
END
$$;

-- Called by a claim that is about to answer that it would get no more jobs of these types, and by a
-- look that has found none. Closes those that have none, and raises the revision of the others, so
-- that the caller looks again: another transaction may be making jobs ready, or may have taken some
-- and give them back.
CREATE FUNCTION close_empty(emptied int4[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one int4;
    unsure int4[] := '{}';
BEGIN
    -- In the order of `announce`: this lock, then the rows of all types that may be written.
    PERFORM pg_advisory_xact_lock_shared(lock_class(), 0);
    PERFORM FROM type WHERE id = ANY (emptied) ORDER BY id FOR NO KEY UPDATE;
    FOR one IN SELECT t FROM unnest(emptied) t ORDER BY t LOOP
        IF pg_try_advisory_xact_lock(lock_class(), type_lock(one)) THEN
            PERFORM FROM segments(one) s
              CROSS JOIN LATERAL (
                    SELECT FROM ready r
                     WHERE r.type_id = one AND r.rank < s.until
                       AND (r.rank, r.run_at, r.tie, r.id) >= (s.rank, s.run_at, s.tie, s.id)
                     ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT 1) AS first
              LIMIT 1;
            IF FOUND THEN
                unsure := unsure || one;
            ELSE
                UPDATE type SET open = false WHERE id = one AND open;
            END IF;
        ELSE
            unsure := unsure || one;
        END IF;
    END LOOP;
    IF unsure <> '{}' THEN
        PERFORM raise_revision(unsure);
    END IF;
END
$$;

-- Sums up counts of ended jobs, unless another daemon is doing so. Returns how many rows they were.
CREATE FUNCTION fold_ended(most int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
    summed int8 := 0;
BEGIN
    IF pg_try_advisory_xact_lock(lock_class(), -2) THEN
        WITH gone AS (
            DELETE FROM ended_delta
             WHERE ctid = ANY (ARRAY(SELECT ctid FROM ended_delta LIMIT most))
            RETURNING type_id, finished, failed, cancelled
        ), put AS (
            INSERT INTO ended_count AS c (type_id, finished, failed, cancelled)
            SELECT type_id, sum(finished), sum(failed), sum(cancelled) FROM gone GROUP BY type_id
                ON CONFLICT (type_id) DO UPDATE
               SET finished = c.finished + excluded.finished, failed = c.failed + excluded.failed,
                   cancelled = c.cancelled + excluded.cancelled
        )
        SELECT count(*) INTO summed FROM gone;
    END IF;
    RETURN summed;
END
$$;

-- Called before the commit of a synced transaction: the server writes its log to disk only for one
-- that has changed something. One that has not, because what it found does not allow the change,
-- promises that what it found is durable.
CREATE FUNCTION write_something() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        UPDATE meta SET value = value + 1 WHERE name = 'synced';
    END IF;
END
$$;
