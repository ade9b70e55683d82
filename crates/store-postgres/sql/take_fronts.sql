-- The first jobs of the queues of some types: of each at most $8, of all together at most $9, if
-- that is set. Hidden jobs have 10000 added to their rank, and the same place in the order. Jobs
-- that have expired, or whose payload is too large, are passed.
SELECT t.id, front.rank, front.run_at, front.tie, front.id
  FROM type t
 CROSS JOIN LATERAL (
    (SELECT r.rank, r.run_at, r.tie, r.id
       FROM (SELECT rank, run_at, tie, id FROM ready
              WHERE type_id = t.id AND rank BETWEEN $2 AND $3
              ORDER BY rank, run_at, tie, id LIMIT $7) AS r
       JOIN job j ON j.id = r.id
      WHERE j.payload_bytes <= $5 AND (j.expires_at IS NULL OR j.expires_at > $6)
      ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT $8)
    UNION ALL
    (SELECT r.rank, r.run_at, r.tie, r.id
       FROM (SELECT rank, run_at, tie, id FROM ready
              WHERE $4 AND type_id = t.id AND rank BETWEEN 10000 + $2 AND 10000 + $3
              ORDER BY rank, run_at, tie, id LIMIT $7) AS r
       JOIN job j ON j.id = r.id
      WHERE j.payload_bytes <= $5 AND (j.expires_at IS NULL OR j.expires_at > $6)
      ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT $8)
 ) AS front
 WHERE t.id = ANY ($1)
 ORDER BY front.rank % 10000, front.run_at, front.tie, t.name, front.id
 LIMIT $9
