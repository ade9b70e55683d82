-- A tenant's jobs among the newest of all tenants. The row of a running job says `queued`.
SELECT j.id
  FROM (SELECT id, type_id, state FROM job WHERE id < $1 ORDER BY id DESC LIMIT $5) AS j
  JOIN type t ON t.id = j.type_id
  LEFT JOIN lease l ON l.id = j.id
 WHERE t.tenant = $2
   AND ($3::int2 IS NULL OR $3 = CASE WHEN l.id IS NULL THEN j.state ELSE 1::int2 END)
 ORDER BY j.id DESC LIMIT $4
