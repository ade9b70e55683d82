-- The newest jobs of some types in some states: the newest of each, by the index, and then the
-- newest of all of them.
SELECT newest.id
  FROM unnest($1::int4[]) AS t (id)
 CROSS JOIN unnest($2::int2[]) AS s (state)
 CROSS JOIN LATERAL (
    SELECT j.id FROM job j
     WHERE j.type_id = t.id AND j.state = s.state AND j.id < $3
       AND NOT ($5 AND EXISTS (SELECT FROM lease l WHERE l.id = j.id))
     ORDER BY j.id DESC LIMIT $4
 ) AS newest
 ORDER BY newest.id DESC LIMIT $4
