-- One job of the tenant in whose scope they run.

-- name: RUN
SELECT submitted, eligible, started, finish, ended, suspended, time_limit, gpus FROM billing_ownrun
WHERE record_id = %(record)s

-- name: MEASURED
SELECT kind, title, unit, parts, quantity FROM billing_own_measured(%(record)s)

-- name: STRETCHES
-- (number, device-seconds that devices worked, of those covered) of equal stretches from a second on.
SELECT (hour - %(since)s) / %(width)s, sum(busy), sum(covered) FROM billing_ownhour
WHERE record_id = %(record)s AND covered > 0 GROUP BY 1 ORDER BY 1
