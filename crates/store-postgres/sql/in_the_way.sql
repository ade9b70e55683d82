-- The job with the smallest id of a type that has not ended, has failed, or is an ended child: the
-- first of each state by an index. Rows of running jobs say `queued`.
SELECT min(first.id)
  FROM type t
 CROSS JOIN unnest(ARRAY[0, 2, 3, 4, 5]::int2[]) AS s (state)
 CROSS JOIN LATERAL (
    (SELECT j.id FROM job j
      WHERE NOT $3 AND j.type_id = t.id AND j.state = s.state AND j.parts & 64 = 0
        AND (s.state IN (0, 2, 4) OR j.parent_id IS NOT NULL)
      ORDER BY j.id LIMIT 1)
    UNION ALL
    (SELECT j.id FROM job j
      WHERE $3 AND j.type_id = t.id AND j.state = s.state AND j.parts & 64 <> 0
        AND (s.state IN (0, 2, 4) OR j.parent_id IS NOT NULL)
      ORDER BY j.id LIMIT 1)
 ) AS first
 WHERE t.tenant = $1 AND t.name = $2
