-- The history of changes in the order of commits, for programs that collect it.

-- name: COMMITS
-- The next transactions after this number, each with the number of the one before it.
SELECT c.transaction, c.number, coalesce(lag(c.number) OVER (ORDER BY c.number), b.number, 0) AS previous
FROM (SELECT transaction, number FROM audit_commit WHERE number > %(after)s ORDER BY number LIMIT %(size)s) c
LEFT JOIN LATERAL (SELECT max(number) AS number FROM audit_commit WHERE number <= %(after)s) b ON true
ORDER BY c.number

-- name: ENTRIES
-- All that these transactions changed, in their order, which is that of the numbers. Keys of transactions are drawn in
-- turn, so the summary of their blocks (`audit_entry_of_transaction`) tells where they are.
SELECT c.number, c.previous, row_number() OVER w AS place, count(*) OVER (PARTITION BY c.number) AS of,
       e.id, e.at, e.who, e.through, e.why, e.tenant_id, t.slug, e."table", e.key, e.operation, e.before, e.after
FROM unnest(%(transactions)s::bigint[], %(numbers)s::bigint[], %(previous)s::bigint[])
     AS c (transaction, number, previous)
JOIN audit_entry e ON e.transaction = c.transaction
LEFT JOIN tenants_tenant t ON t.id = e.tenant_id
WHERE e.transaction BETWEEN %(lowest)s AND %(highest)s
WINDOW w AS (PARTITION BY c.number ORDER BY e.id)
ORDER BY c.number, e.id
