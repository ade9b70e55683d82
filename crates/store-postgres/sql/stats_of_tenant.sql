-- Type by type, each by its indexes.
SELECT t.tenant, t.name, t.handler_id IS NOT NULL, t.suspended, t.settings IS NOT NULL,
       r.ready + d.due, r.hidden + d.waiting + w.jobs, l.jobs, p.jobs, e.finished, e.failed,
       e.cancelled, least(r.oldest, d.oldest)
  FROM type t
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE rank < 10000) AS ready,
           count(*) FILTER (WHERE rank >= 10000) AS hidden,
           min(run_at) FILTER (WHERE rank < 10000) AS oldest
      FROM ready WHERE type_id = t.id
 ) AS r
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE rank < 10000 AND run_at <= $1) AS due,
           count(*) FILTER (WHERE rank >= 10000 OR run_at > $1) AS waiting,
           min(run_at) FILTER (WHERE rank < 10000 AND run_at <= $1) AS oldest
      FROM deferred WHERE type_id = t.id
 ) AS d
 CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM withheld WHERE type_id = t.id) AS w
 CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM lease WHERE type_id = t.id) AS l
 CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM job WHERE type_id = t.id AND state = 2) AS p
 CROSS JOIN LATERAL (
    SELECT coalesce(sum(finished), 0)::int8 AS finished, coalesce(sum(failed), 0)::int8 AS failed,
           coalesce(sum(cancelled), 0)::int8 AS cancelled
      FROM (SELECT finished, failed, cancelled FROM ended_count WHERE type_id = t.id
            UNION ALL
            SELECT finished, failed, cancelled FROM ended_delta WHERE type_id = t.id) AS ended
 ) AS e
 WHERE t.tenant = $2
 ORDER BY t.name
