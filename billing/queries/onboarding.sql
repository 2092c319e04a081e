-- How far a new installation is set up.

-- name: PROGRESS
SELECT EXISTS (SELECT FROM billing_seller), EXISTS (SELECT FROM clusters_cluster),
       EXISTS (SELECT FROM clusters_account), EXISTS (SELECT FROM tenants_ownership),
       EXISTS (SELECT FROM billing_subscription),
       EXISTS (SELECT FROM billing_closerun) OR EXISTS (SELECT FROM billing_invoice)
