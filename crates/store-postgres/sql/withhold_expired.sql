-- Moves expired jobs of some types from `ready` to `withheld`, except those that others have
-- locked. They are found by their expiry, and then by their whole key: `ready` may be long.
WITH expired AS (
    SELECT r.type_id, r.rank, r.run_at, r.tie, r.id
      FROM job j
      LEFT JOIN extra e ON e.id = j.id AND j.parts & 256 <> 0
      JOIN ready r
        ON r.type_id = j.type_id
       AND r.rank = 1000 - j.priority + CASE WHEN j.parts & 64 <> 0 THEN 10000 ELSE 0 END
       AND r.run_at = j.run_at
       AND r.tie = 2 * coalesce(e.order_key, 0) + CASE WHEN j.parts & 128 <> 0 THEN 1 ELSE 0 END
       AND r.id = j.id
     WHERE j.expires_at IS NOT NULL AND j.state < 3 AND j.expires_at <= $1
       AND j.type_id = ANY ($2)
     LIMIT $3
       FOR UPDATE OF r SKIP LOCKED
), gone AS (
    DELETE FROM ready r USING expired e
     WHERE r.type_id = e.type_id AND r.rank = e.rank AND r.run_at = e.run_at AND r.tie = e.tie
       AND r.id = e.id
    RETURNING r.id, r.type_id
)
INSERT INTO withheld (id, type_id) SELECT id, type_id FROM gone ON CONFLICT (id) DO NOTHING
