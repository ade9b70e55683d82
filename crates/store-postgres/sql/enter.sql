-- Inserts jobs, and returns the ids of those that did not exist. In the order of their ids, so that
-- transactions that insert the same jobs wait for each other and not in a circle.
INSERT INTO job (id, type_id, state, priority, run_at, due_at, created_at, expires_at, timeout_ms,
                 parent_id, parts, payload_bytes, unique_key, then_name, payload, attempt)
SELECT n.*, 0
  FROM unnest($1::int8[], $2::int4[], $3::int2[], $4::int2[], $5::int8[], $6::int8[], $7::int8[],
              $8::int8[], $9::int8[], $10::int8[], $11::int4[], $12::int8[], $13::bytea[],
              $14::text[], $15::bytea[])
       AS n (id, type_id, state, priority, run_at, due_at, created_at, expires_at, timeout_ms,
             parent_id, parts, payload_bytes, unique_key, then_name, payload)
 ORDER BY n.id
    ON CONFLICT (id) DO NOTHING
RETURNING id;
