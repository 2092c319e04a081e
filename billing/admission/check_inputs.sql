-- name: QUOTAS
-- The quotas in force of a tenant but those of wallets, by name, with the project, the last period that has ended, and the
-- accounts that the quota blocks; in each row, and in one without a quota where there is none, whether they block nothing for
-- now, and whether the tenant has wallets.
SELECT q.*, p.*, n.*, b.accounts, s.is_released, s.has_wallets
FROM (
    SELECT EXISTS (SELECT FROM billing_quotarelease r WHERE r.tenant_id = %(tenant)s AND r.until > %(moment)s) AS is_released,
           EXISTS (SELECT FROM billing_walletscheme w WHERE w.tenant_id = %(tenant)s) AS has_wallets
) s LEFT JOIN billing_quota q ON q.tenant_id = %(tenant)s AND q.ended_at IS NULL AND q.wallet_id IS NULL
LEFT JOIN tenants_project p ON p.id = q.project_id
LEFT JOIN LATERAL (
    SELECT * FROM billing_quotaperiod x WHERE x.quota_id = q.id AND x."end" <= %(moment)s ORDER BY x.start DESC LIMIT 1
) n ON true
LEFT JOIN LATERAL (
    SELECT array_agg(x.account_id) AS accounts FROM billing_quotablock x
    WHERE x.quota_id = q.id AND x.ended_at IS NULL AND x.state = ANY (%(blocking)s)
) b ON true
ORDER BY q.name, q.id;
