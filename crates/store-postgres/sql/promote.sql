-- Moves jobs that are due from `deferred` to `ready`, those that have been due the longest first.
-- $1 now, $2 how many at most. Returns for each type and rank the time of the first and the last
-- one, and how many.
WITH due AS (
    SELECT first.run_at, first.id
      FROM segments(-1) s
     CROSS JOIN LATERAL (
           SELECT d.run_at, d.id
             FROM deferred d
            WHERE d.run_at <= $1 AND (d.run_at, d.id) >= (s.run_at, s.id)
            ORDER BY d.run_at, d.id
            LIMIT $2
              FOR UPDATE SKIP LOCKED) AS first
     WHERE s.until = 10000
), gone AS (
    DELETE FROM deferred d
     USING due
     WHERE d.run_at = due.run_at AND d.id = due.id
    RETURNING d.type_id, d.rank, d.run_at, d.tie, d.id
), put AS (
    INSERT INTO ready (type_id, rank, run_at, tie, id)
    SELECT type_id, rank, run_at, tie, id FROM gone
    RETURNING type_id, rank, run_at
)
SELECT type_id, rank, min(run_at), max(run_at), count(*) FROM put GROUP BY type_id, rank;
