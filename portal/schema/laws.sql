-- What must be true across applications. What concerns one table stands with its model, as a constraint or trigger.

-- A job has no foreign keys, which would ask for each of millions: its tenant and project refuse to go instead.
-- A tenant's jobs are found by an index; a project's only within its tenant's, and projects go hardly ever.
CREATE FUNCTION billing_keep_while_jobs() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    used boolean;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_NAME = 'tenants_tenant' THEN
        used := EXISTS (SELECT 1 FROM billing_ratedjob WHERE tenant_id = OLD.id AND meter = '')
             OR EXISTS (SELECT 1 FROM billing_ratedjob WHERE tenant_id = OLD.id AND meter <> '');
    ELSE
        used := EXISTS (SELECT 1 FROM billing_ratedjob WHERE project_id = OLD.id);
    END IF;
    IF used THEN
        RAISE EXCEPTION 'Jobs are rated for it, so it is kept.' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION billing_keep_while_jobs() FROM PUBLIC;
CREATE TRIGGER tenant_with_jobs_is_kept AFTER DELETE OR UPDATE OF id ON tenants_tenant
    FOR EACH ROW EXECUTE FUNCTION billing_keep_while_jobs();
CREATE TRIGGER project_with_jobs_is_kept AFTER DELETE OR UPDATE OF id ON tenants_project
    FOR EACH ROW EXECUTE FUNCTION billing_keep_while_jobs();

-- Who has left owns no account from then on.
CREATE FUNCTION billing_tenant_that_left_owns_no_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.tenant_id = OLD.tenant_id AND (OLD.until IS NULL OR NEW.until <= OLD.until) THEN
        RETURN NEW;
    END IF;
    PERFORM 1 FROM tenants_tenant WHERE id = NEW.tenant_id FOR KEY SHARE;
    IF EXISTS (
        SELECT 1 FROM billing_archive a WHERE a.tenant_id = NEW.tenant_id AND (NEW.until IS NULL OR NEW.until > a.at)
    ) THEN
        RAISE EXCEPTION 'A tenant that has left would own an account.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tenant_that_left_owns_no_account';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tenant_that_left_owns_no_account BEFORE INSERT OR UPDATE ON tenants_ownership
    FOR EACH ROW EXECUTE FUNCTION billing_tenant_that_left_owns_no_account();

-- A price of a declared meter says its unit and its name. As long as no sum of it came they may change, and prices follow.
CREATE FUNCTION billing_price_is_per_unit_of_its_meter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM clusters_declaredmeter m
    WHERE (m.name, m.unit, m.title, m.unit_code) = (NEW.meter, NEW.unit, NEW.title, NEW.unit_code) FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'A price is not per the unit of a declared meter.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'price_is_per_unit_of_its_meter';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER price_is_per_unit_of_its_meter AFTER INSERT OR UPDATE ON billing_price
    DEFERRABLE INITIALLY IMMEDIATE FOR EACH ROW WHEN (NEW.unit <> '') EXECUTE FUNCTION billing_price_is_per_unit_of_its_meter();

CREATE FUNCTION billing_meter_is_kept_by_plans() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (TG_OP = 'DELETE' OR NEW.name <> OLD.name) AND (
           EXISTS (SELECT FROM billing_price WHERE meter = OLD.name)
           OR EXISTS (SELECT FROM billing_planversion WHERE OLD.name = ANY (charges))) THEN
        RAISE EXCEPTION 'Plans charge this meter, so it is kept.'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'meter_of_plans_is_kept';
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE billing_price SET unit = NEW.unit, title = NEW.title, unit_code = NEW.unit_code
        WHERE meter = NEW.name AND (unit, title, unit_code) <> (NEW.unit, NEW.title, NEW.unit_code);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER meter_is_kept_by_plans AFTER DELETE OR UPDATE ON clusters_declaredmeter
    FOR EACH ROW EXECUTE FUNCTION billing_meter_is_kept_by_plans();

-- An account that comes to a tenant, or goes, may be one that a quota blocks: both tenants' quotas are looked at anew.
CREATE FUNCTION billing_review_quotas_of_owners() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.billing_quotachange (tenant_id)
    SELECT DISTINCT q.tenant_id FROM public.billing_quota q
    WHERE q.ended_at IS NULL AND q.tenant_id IN (OLD.tenant_id, NEW.tenant_id);
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_follow_the_owners_of_accounts AFTER INSERT OR UPDATE OR DELETE ON tenants_ownership
    FOR EACH ROW EXECUTE FUNCTION billing_review_quotas_of_owners();

-- A tenant that comes to a plan with quotas, or leaves it, has others from then on.
CREATE FUNCTION billing_review_quotas_of_subscribers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.billing_quotachange (tenant_id)
    SELECT DISTINCT t.id FROM unnest(ARRAY[OLD.tenant_id, NEW.tenant_id]) AS t (id)
    WHERE t.id IS NOT NULL AND EXISTS (
        SELECT FROM public.billing_planquota q JOIN public.billing_planversion v ON v.id = q.version_id
        WHERE v.plan_id IN (OLD.plan_id, NEW.plan_id));
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_follow_the_plans_of_tenants AFTER INSERT OR UPDATE OR DELETE ON billing_subscription
    FOR EACH ROW EXECUTE FUNCTION billing_review_quotas_of_subscribers();

-- Credit that is given, or paid in, lowers what some quotas count.
CREATE FUNCTION billing_review_quotas_net_of_credits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.billing_quotachange (tenant_id)
    SELECT NEW.tenant_id WHERE EXISTS (
        SELECT FROM public.billing_quota q
        WHERE q.tenant_id = NEW.tenant_id AND q.ended_at IS NULL AND q.credits <> 'gross');
    RETURN NULL;
END $$;
CREATE TRIGGER quotas_follow_what_wallets_are_given AFTER INSERT ON billing_walletentry
    FOR EACH ROW WHEN (NEW.side = 'granted') EXECUTE FUNCTION billing_review_quotas_net_of_credits();
CREATE TRIGGER quotas_follow_credit_notes AFTER INSERT OR UPDATE OF state ON billing_invoice
    FOR EACH ROW WHEN (NEW.kind = 'credit-note' AND NEW.state = 'issued')
    EXECUTE FUNCTION billing_review_quotas_net_of_credits();
