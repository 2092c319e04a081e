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
        used := EXISTS (SELECT 1 FROM billing_ratedjob WHERE tenant_id = OLD.id);
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
