-- Row level security: what the role of the tenants' pages may read.

-- Its own rows, all columns.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'billing_automatictopup', 'billing_billedjob', 'billing_billingaccount', 'billing_billingcontact', 'billing_billingperiod', 'billing_creditentry', 'billing_departure',
        'billing_dailyusage', 'billing_daytotal', 'billing_dunningpause', 'billing_efficiencysnapshot', 'billing_evidence', 'billing_invoice', 'billing_invoicedocument',
        'billing_invoiceline', 'billing_invoicetax', 'billing_jobuser', 'billing_linejobs', 'billing_notice', 'billing_payment', 'billing_paymentattempt',
        'billing_paymentdispute', 'billing_paymentlink', 'billing_paymentrefund', 'billing_periodjobs', 'billing_periodtopjob', 'billing_periodtotal',
        'billing_concurrencylimit', 'billing_limitedaccount',
        'billing_quota', 'billing_quotablock', 'billing_quotacrossing', 'billing_quotaending', 'billing_quotaperiod',
        'billing_ratedjob', 'billing_ratedusage', 'billing_reservation', 'billing_reservationrun', 'billing_reservedamount',
        'billing_runcountsnapshot',
        'billing_savedmethod', 'billing_subscription', 'billing_suspension', 'billing_topup',
        'billing_transferpart', 'billing_usageseries', 'billing_voiding', 'billing_wallet', 'billing_walletentry',
        'billing_walletgrant', 'billing_wallethold', 'billing_walletscheme', 'billing_wastechoice', 'billing_wastefinding', 'billing_writeoff', 'billing_servicecredit',
        'events_event', 'tenants_ownership', 'tenants_project',
        'billing_manualline', 'audit_entry'  -- the first without a right on it, the second with one on columns alone, below
    ] LOOP
        EXECUTE format(
            'ALTER TABLE %1$I ENABLE ROW LEVEL SECURITY;
             CREATE POLICY %2$I ON %1$I FOR SELECT TO clustertab_portal
                 USING (tenant_id = (SELECT nullif(current_setting(''app.tenant_id'', true), '''')::bigint))',
            name, name || '_of_tenant');
        IF name NOT IN ('billing_manualline', 'audit_entry') THEN
            EXECUTE format('GRANT SELECT ON %I TO clustertab_portal', name);
        END IF;
    END LOOP;
END $$;

-- Of the history what concerns people of the tenant, without the reasons that operators give; the list is that of
-- `portal/web/history.py`.
ALTER POLICY audit_entry_of_tenant ON audit_entry USING (
    tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
    AND "table" IN ('api_apikey', 'billing_automatictopup', 'billing_billingcontact', 'billing_concurrencylimit', 'billing_quota',
                    'billing_quotablock', 'billing_quotaending', 'billing_paymentlink', 'billing_savedmethod', 'billing_subscription', 'billing_departure', 'billing_walletscheme', 'billing_wastechoice', 'billing_wastefinding', 'tenants_invitation',
                    'tenants_membership', 'tenants_ownership', 'tenants_supportview', 'tenants_tenant',
                    'webhooks_webhook'));
GRANT SELECT (id, at, "table", key, operation, before, after, tenant_id, who, through) ON audit_entry
    TO clustertab_portal;

-- No tenant's page reads these, and none of their rights is granted: should one ever be, it shows no row.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'api_apikey', 'api_idempotentrequest', 'billing_allowance', 'billing_archive', 'billing_approvallimit', 'billing_closeproof', 'billing_closereport',
        'billing_closeresult', 'billing_closerun', 'billing_closeschedule', 'billing_scheduledclose', 'billing_difference', 'billing_monthsum', 'billing_pendingapproval', 'billing_checkoutsession', 'billing_suspendedaccount',
        'billing_noticedelivery', 'billing_noticepreference', 'billing_quotachange', 'billing_quotarelease', 'billing_quotareview', 'billing_sealedfile', 'billing_signup', 'billing_walletbooking', 'billing_wallettotal', 'events_eventcounter', 'tenants_accountmail', 'tenants_exclusion', 'tenants_identitygrant', 'tenants_invitation', 'tenants_membership',
        'tenants_supportview', 'tenants_tenantnote',
        'webhooks_delivery', 'webhooks_webhook'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    END LOOP;
END $$;

-- People: whoever acts for a tenant sees those of the tenant alone.
ALTER TABLE tenants_user ENABLE ROW LEVEL SECURITY;

-- Names of accounts, which are often those of whoever they belong to.
ALTER TABLE clusters_account ENABLE ROW LEVEL SECURITY;

-- The tenant itself.
ALTER TABLE tenants_tenant ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenants_tenant_of_tenant ON tenants_tenant FOR SELECT TO clustertab_portal
    USING (id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT ON tenants_tenant TO clustertab_portal;

-- The rules that say which idle jobs are ended: those in force, which hold for all tenants, and those of its own jobs.
ALTER TABLE billing_wasterule ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_wasterule_in_force ON billing_wasterule FOR SELECT TO clustertab_portal, clustertab_agent
    USING (ended_at IS NULL OR id IN (SELECT f.rule_id FROM billing_wastefinding f));
GRANT SELECT ON billing_wasterule TO clustertab_portal, clustertab_agent;

-- The public keys that verify its evidence: anybody's. The private ones are nobody's but the signer's.
GRANT SELECT (id, name, public, since, until) ON billing_signingkey TO clustertab_portal;

-- The policy of dunning by which past due is told: its own, or everybody's.
ALTER TABLE billing_dunningpolicy ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_dunningpolicy_of_tenant ON billing_dunningpolicy FOR SELECT TO clustertab_portal
    USING (tenant_id IS NULL OR tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT ON billing_dunningpolicy TO clustertab_portal;

-- The prices by which its own usage was rated, and their currency. Nobody sees a price that was negotiated with
-- somebody else, nor one that is not in use yet.
ALTER TABLE billing_price ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_price_of_own_usage ON billing_price FOR SELECT TO clustertab_portal
    USING (id IN (SELECT t.price_id FROM billing_periodtotal t
                  WHERE t.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)));
GRANT SELECT ON billing_price TO clustertab_portal;

ALTER TABLE billing_pricecorrection ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_pricecorrection_of_own_usage ON billing_pricecorrection FOR SELECT TO clustertab_portal
    USING (price_id IN (SELECT p.id FROM billing_price p));
GRANT SELECT (number, price_id, unit_price) ON billing_pricecorrection TO clustertab_portal;

ALTER TABLE billing_planversion ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_planversion_of_own_usage ON billing_planversion FOR SELECT TO clustertab_portal
    USING (id IN (SELECT p.version_id FROM billing_price p));
GRANT SELECT (id, plan_id) ON billing_planversion TO clustertab_portal;

ALTER TABLE billing_plan ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_plan_of_own_usage ON billing_plan FOR SELECT TO clustertab_portal
    USING (id IN (SELECT v.plan_id FROM billing_planversion v));
GRANT SELECT (id, currency) ON billing_plan TO clustertab_portal;

-- Which version of a plan says the terms on its own invoices: no more of them.
DO $$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['fee', 'commitment', 'discount'] LOOP
        EXECUTE format(
            'ALTER TABLE %1$I ENABLE ROW LEVEL SECURITY;
             CREATE POLICY %2$I ON %1$I FOR SELECT TO clustertab_portal
                 USING (id IN (SELECT l.term_id FROM billing_invoiceline l
                               WHERE l.tenant_id = (SELECT nullif(current_setting(''app.tenant_id'', true), '''')::bigint)
                                 AND l.kind = %3$L));
             GRANT SELECT (id, version_id) ON %1$I TO clustertab_portal',
            'billing_' || kind, 'billing_' || kind || '_of_own_invoices', kind);
    END LOOP;
END $$;

-- Who pays sees the totals, the projects and the periods of what it pays for, and none of the jobs: periods of its
-- time, and those that something it pays stands in, whenever that became known.
ALTER TABLE billing_payer ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_payer_of_tenant ON billing_payer FOR SELECT TO clustertab_portal
    USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
           OR payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
GRANT SELECT ON billing_payer TO clustertab_portal;
CREATE POLICY billing_periodtotal_of_payer ON billing_periodtotal FOR SELECT TO clustertab_portal
    USING (payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
CREATE POLICY tenants_project_of_payer ON tenants_project FOR SELECT TO clustertab_portal
    USING (id IN (SELECT t.project_id FROM billing_periodtotal t
                  WHERE t.payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)));
CREATE POLICY billing_billingperiod_of_payer ON billing_billingperiod FOR SELECT TO clustertab_portal USING (
    EXISTS (SELECT FROM billing_payer y WHERE y.tenant_id = billing_billingperiod.tenant_id
            AND y.payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)
            AND billing_billingperiod."end" > y.since::timestamp AT TIME ZONE timezone
            AND (y.until IS NULL OR y.until > y.since
                 AND billing_billingperiod.start < y.until::timestamp AT TIME ZONE timezone))
    OR id IN (SELECT t.period_id FROM billing_periodtotal t
              WHERE t.payer_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint))
    OR EXISTS (SELECT FROM billing_invoiceline l
               WHERE l.service_period_id = billing_billingperiod.id
                 AND l.tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)));

-- A member of a tenant that shows members their own usage alone: of jobs those of the users in `app.users`, of totals
-- those of the projects that these used. These policies come to those above. Counts, rankings and documents of the
-- whole tenant show nothing; pages that are made of them are not the member's (`Action.READ_ALL`).
CREATE POLICY billing_ratedjob_of_member ON billing_ratedjob AS RESTRICTIVE FOR SELECT TO clustertab_member
    USING ("user" = ANY ((SELECT own_users())::text[]));
CREATE POLICY billing_usageseries_of_member ON billing_usageseries AS RESTRICTIVE FOR SELECT TO clustertab_member
    USING ("user" = ANY ((SELECT own_users())::text[]));
CREATE POLICY billing_ratedusage_of_member ON billing_ratedusage AS RESTRICTIVE FOR SELECT TO clustertab_member
    USING (EXISTS (SELECT FROM billing_ratedjob j WHERE j.record_id = billing_ratedusage.record_id));
CREATE POLICY tenants_project_of_member ON tenants_project AS RESTRICTIVE FOR SELECT TO clustertab_member
    USING (id IN (SELECT s.project_id FROM billing_usageseries s)
           OR id IN (SELECT j.project_id FROM billing_ratedjob j WHERE j.ended IS NULL));
CREATE POLICY billing_dailyusage_of_member ON billing_dailyusage AS RESTRICTIVE FOR SELECT TO clustertab_member
    USING (series_id IN (SELECT s.id FROM billing_usageseries s));
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['billing_daytotal', 'billing_periodtotal'] LOOP
        EXECUTE format('CREATE POLICY %2$I ON %1$I AS RESTRICTIVE FOR SELECT TO clustertab_member
                            USING (project_id IN (SELECT s.project_id FROM billing_usageseries s))',
                       name, name || '_of_member');
    END LOOP;
    -- All else that the pages of the tenant read and that is of the whole tenant, also what comes to be later.
    FOR name IN SELECT DISTINCT p.tablename FROM pg_policies p
                WHERE p.schemaname = 'public' AND 'clustertab_portal' = ANY (p.roles)
                  AND p.tablename NOT IN ('billing_billingperiod', 'billing_dunningpolicy', 'billing_plan', 'billing_planversion',
                                          'billing_price', 'billing_pricecorrection', 'billing_subscription', 'tenants_tenant')
                  AND NOT EXISTS (SELECT FROM pg_policies m WHERE m.schemaname = 'public' AND m.tablename = p.tablename
                                  AND 'clustertab_member' = ANY (m.roles))
    LOOP
        EXECUTE format('CREATE POLICY %2$I ON %1$I AS RESTRICTIVE FOR SELECT TO clustertab_member USING (false)',
                       name, name || '_of_member');
    END LOOP;
END $$;
