-- One job of the tenant in whose scope they run.

-- name: RUN
SELECT r.submitted, r.eligible, r.started, r.finish, r.ended, r.suspended, r.time_limit, r.gpus, e.title, e.unit, e.joules,
       (SELECT json_agg(json_build_array(b.title, b.unit, b.quantity, b.parts) ORDER BY b.title)
        FROM billing_ownuse b WHERE b.record_id = r.record_id AND b.quantity > 0)
FROM billing_ownrun r LEFT JOIN billing_ownenergy e ON e.record_id = r.record_id
WHERE r.record_id = %(record)s

-- name: STRETCHES
-- (number, device-seconds that devices worked, of those covered) of equal stretches from a second on.
SELECT (hour - %(since)s) / %(width)s, sum(busy), sum(covered) FROM billing_ownhour
WHERE record_id = %(record)s AND covered > 0 GROUP BY 1 ORDER BY 1
