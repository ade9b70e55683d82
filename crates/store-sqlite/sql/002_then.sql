-- `then_name` is the type, of the same tenant, whose job gets the result of this one. It stands behind
-- the payload, which is in the row only when it is small.
ALTER TABLE job ADD COLUMN then_name TEXT;

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
       j.then_name
  FROM job j
  JOIN type t ON t.id = j.type_id
  LEFT JOIN lease l ON l.id = j.id;
