-- Rewrites rows of jobs that end or are queued again.
UPDATE job j
   SET state       = n.state,
       attempt     = n.attempt,
       token       = n.token,
       started_at  = coalesce(n.started_at, j.started_at),
       run_at      = coalesce(n.run_at, j.run_at),
       due_at      = coalesce(n.due_at, j.due_at),
       finished_at = n.finished_at,
       purge_at    = n.purge_at,
       last_code   = coalesce(n.code, j.last_code),
       last_status = coalesce(n.status, j.last_status),
       parts       = n.parts
  FROM unnest($1::int8[], $2::int2[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::int8[],
              $8::int8[], $9::int8[], $10::int2[], $11::int2[], $12::int4[])
       AS n (id, state, attempt, token, started_at, run_at, due_at, finished_at, purge_at, code,
             status, parts)
 WHERE j.id = n.id;
