"""A tenant that has left owns no account afterwards.

Archiving holds the tenant's row against every other lock while it looks at what is owned, so that one of the two
always sees the other. What was owned before may still be mended, and an end that came too late be moved forward.
"""

from django.db import migrations

LAW = """
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
"""

NO_LAW = """
DROP TRIGGER tenant_that_left_owns_no_account ON tenants_ownership;
DROP FUNCTION billing_tenant_that_left_owns_no_account();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0058_payers_are_erased"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [migrations.RunSQL(LAW, NO_LAW)]
