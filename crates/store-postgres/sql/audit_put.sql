INSERT INTO audit (at, id, actor, key_id, role, address, action, tenant, type_name, subject_id,
                   detail, status, reason, count, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (at, id) DO UPDATE
   SET actor = excluded.actor, key_id = excluded.key_id, role = excluded.role,
       address = excluded.address, action = excluded.action, tenant = excluded.tenant,
       type_name = excluded.type_name, subject_id = excluded.subject_id, detail = excluded.detail,
       status = excluded.status, reason = excluded.reason, count = excluded.count,
       last_at = excluded.last_at
