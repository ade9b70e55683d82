-- Each table once, so that types without jobs cost next to nothing.
WITH r AS (
    SELECT type_id,
           count(*) FILTER (WHERE rank < 10000) AS ready,
           count(*) FILTER (WHERE rank >= 10000) AS hidden,
           min(run_at) FILTER (WHERE rank < 10000) AS oldest
      FROM ready GROUP BY type_id
), d AS (
    SELECT type_id,
           count(*) FILTER (WHERE rank < 10000 AND run_at <= $1) AS due,
           count(*) FILTER (WHERE rank >= 10000 OR run_at > $1) AS waiting,
           min(run_at) FILTER (WHERE rank < 10000 AND run_at <= $1) AS oldest
      FROM deferred GROUP BY type_id
), w AS (
    SELECT type_id, count(*) AS jobs FROM withheld GROUP BY type_id
), l AS (
    SELECT type_id, count(*) AS jobs FROM lease GROUP BY type_id
), p AS (
    SELECT type_id, count(*) AS jobs FROM job WHERE state = 2 GROUP BY type_id
), e AS (
    SELECT type_id, sum(finished)::int8 AS finished, sum(failed)::int8 AS failed,
           sum(cancelled)::int8 AS cancelled
      FROM (SELECT type_id, finished, failed, cancelled FROM ended_count
            UNION ALL
            SELECT type_id, finished, failed, cancelled FROM ended_delta) AS ended
     GROUP BY type_id
)
SELECT t.tenant, t.name, t.handler_id IS NOT NULL, t.suspended, t.settings IS NOT NULL,
       coalesce(r.ready, 0) + coalesce(d.due, 0),
       coalesce(r.hidden, 0) + coalesce(d.waiting, 0) + coalesce(w.jobs, 0),
       coalesce(l.jobs, 0), coalesce(p.jobs, 0), coalesce(e.finished, 0), coalesce(e.failed, 0),
       coalesce(e.cancelled, 0), least(r.oldest, d.oldest)
  FROM type t
  LEFT JOIN r ON r.type_id = t.id
  LEFT JOIN d ON d.type_id = t.id
  LEFT JOIN w ON w.type_id = t.id
  LEFT JOIN l ON l.type_id = t.id
  LEFT JOIN p ON p.type_id = t.id
  LEFT JOIN e ON e.type_id = t.id
 WHERE t.handler_id IS NOT NULL OR t.suspended OR t.settings IS NOT NULL
    OR r.type_id IS NOT NULL OR d.type_id IS NOT NULL OR w.type_id IS NOT NULL
    OR l.type_id IS NOT NULL OR p.type_id IS NOT NULL
    OR e.finished > 0 OR e.failed > 0 OR e.cancelled > 0
 ORDER BY t.tenant, t.name
