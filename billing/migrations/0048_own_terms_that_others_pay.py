"""What one tenant has of its own is frozen by lines on invoices of who pays for it, too."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0047_automatic_top_ups"),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name="allowance",
            name="used_terms_are_frozen",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="commitment",
            name="used_terms_are_frozen",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="discount",
            name="used_terms_are_frozen",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="fee",
            name="used_terms_are_frozen",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="allowance",
            trigger=pgtrigger.compiler.Trigger(
                name="used_terms_are_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id)\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'allowance' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id JOIN tenants_tenant t ON t.id = s.tenant_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'usage' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE t.timezone\n      AND l.price_id IN (SELECT p.id FROM billing_price p JOIN billing_allowance a ON a.id = p.allowance_id\n        WHERE a.version_id = OLD.version_id AND a.name = OLD.name)) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="0994c2f2ff86c80e1257905056a51a43e335f33a",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_used_terms_are_frozen_1ff43",
                    table="billing_allowance",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="commitment",
            trigger=pgtrigger.compiler.Trigger(
                name="used_terms_are_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id)\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'commitment' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id JOIN tenants_tenant t ON t.id = s.tenant_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'commitment' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE t.timezone\n      AND l.term_id IN (SELECT id FROM billing_commitment WHERE version_id = OLD.version_id)) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="3f61b28809fe7217456b1452cce9749fdec5a646",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_used_terms_are_frozen_cf9ee",
                    table="billing_commitment",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="discount",
            trigger=pgtrigger.compiler.Trigger(
                name="used_terms_are_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id)\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'discount' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id JOIN tenants_tenant t ON t.id = s.tenant_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'discount' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE t.timezone\n      AND l.term_id = OLD.id) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="cba6092158ce5fa6a1287a73b63ccae41936ee43",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_used_terms_are_frozen_868aa",
                    table="billing_discount",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="fee",
            trigger=pgtrigger.compiler.Trigger(
                name="used_terms_are_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id)\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'fee' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id JOIN tenants_tenant t ON t.id = s.tenant_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'fee' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE t.timezone\n      AND l.term_id = OLD.id) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="cfda9870f5e687a737bbb4a0794b6a9150694200",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_used_terms_are_frozen_29166",
                    table="billing_fee",
                    when="BEFORE",
                ),
            ),
        ),
    ]
