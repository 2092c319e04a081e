-- What a question about a job reads of its tenant, beside the figures of quotas and the price of the job.

-- name: QUOTAS
-- The quotas in force that count the job, by name. Of a wallet the job needs what the wallet has, and of a pool its
-- project borrows: neither is asked of itself.
SELECT q.* FROM billing_quota q
WHERE q.tenant_id = %(tenant)s AND q.ended_at IS NULL AND q.wallet_id IS NULL AND NOT q.lends
  AND (q.project_id IS NULL OR q.project_id = %(project)s) AND q."user" IN ('', %(user)s)
  AND q.account IN ('', %(account)s) AND q.cluster IN ('', %(cluster)s) AND q.queue IN ('', %(queue)s)
  AND q.qos IN ('', %(qos)s) AND q.gpu_model IN ('', %(gpu_model)s)
ORDER BY q.name, q.id;

-- name: STATE
-- Whether the tenant's quotas block nothing for now, whether it has wallets, and which quotas block the account.
SELECT EXISTS (SELECT FROM billing_quotarelease r WHERE r.tenant_id = %(tenant)s AND r.until > %(moment)s),
       EXISTS (SELECT FROM billing_walletscheme s WHERE s.tenant_id = %(tenant)s),
       ARRAY(SELECT b.quota_id FROM billing_quotablock b
             WHERE b.tenant_id = %(tenant)s AND b.account_id = %(account)s AND b.ended_at IS NULL
               AND b.state = ANY (%(blocking)s));
