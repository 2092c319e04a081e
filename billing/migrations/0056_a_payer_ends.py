"""No statement moves the end of a payer once one of both has left."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0055_overpaid_is_credit"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name="payer",
            name="payer_has_no_payer_and_is_kept",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="payer",
            trigger=pgtrigger.compiler.Trigger(
                name="payer_has_no_payer_and_is_kept",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'DELETE' THEN\n    RAISE EXCEPTION 'Who paid is kept: end it on the day on which it began.';\nEND IF;\nIF TG_OP = 'UPDATE'\n   AND (OLD.tenant_id, OLD.payer_id, OLD.since) IS DISTINCT FROM (NEW.tenant_id, NEW.payer_id, NEW.since) THEN\n    RAISE EXCEPTION 'Who pays from when stays: end it, and add another.';\nEND IF;\nPERFORM FROM tenants_tenant WHERE id IN (NEW.tenant_id, NEW.payer_id) ORDER BY id FOR NO KEY UPDATE;\nIF (TG_OP = 'INSERT' OR coalesce(NEW.until, 'infinity') > coalesce(OLD.until, 'infinity'))\n   AND EXISTS (SELECT FROM billing_archive a WHERE a.tenant_id IN (NEW.tenant_id, NEW.payer_id)) THEN\n    RAISE EXCEPTION 'Whoever has left and is archived pays for nobody from then on, and nobody for it.';\nEND IF;\nIF EXISTS (SELECT FROM billing_payer p\n           WHERE p.id <> NEW.id AND (p.tenant_id = NEW.payer_id OR p.payer_id = NEW.tenant_id)\n           AND daterange(p.since, p.until, '[)') && daterange(NEW.since, NEW.until, '[)')) THEN\n    RAISE EXCEPTION 'Whoever pays for another tenant has no payer at the same time.';\nEND IF;\nRETURN NEW;\n",
                    hash="c2a848fb6f19f46152e1065922b3809e96016417",
                    operation="INSERT OR UPDATE OR DELETE",
                    pgid="pgtrigger_payer_has_no_payer_and_is_kept_c54a0",
                    table="billing_payer",
                    when="BEFORE",
                ),
            ),
        ),
    ]
