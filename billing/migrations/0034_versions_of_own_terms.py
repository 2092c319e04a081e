"""The portal role may read which version of a plan says the terms on its tenant's own invoices: no more of them."""

from django.db import migrations

MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"
KINDS = ("fee", "commitment", "discount")

GRANT = "".join(
    f"ALTER TABLE billing_{kind} ENABLE ROW LEVEL SECURITY;"
    f"CREATE POLICY billing_{kind}_of_own_invoices ON billing_{kind} FOR SELECT TO clustertab_portal"
    f" USING (id IN (SELECT l.term_id FROM billing_invoiceline l"
    f" WHERE l.tenant_id = {MINE} AND l.kind = '{kind}'));"
    f"GRANT SELECT (id, version_id) ON billing_{kind} TO clustertab_portal;"
    for kind in KINDS
)

REVOKE = "".join(
    f"REVOKE SELECT (id, version_id) ON billing_{kind} FROM clustertab_portal;"
    f"DROP POLICY billing_{kind}_of_own_invoices ON billing_{kind};"
    f"ALTER TABLE billing_{kind} DISABLE ROW LEVEL SECURITY;"
    for kind in KINDS
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0033_price_by_use")]
    operations = [migrations.RunSQL(GRANT, REVOKE)]
