"""Versions ask the months that they can have rated; payers read the periods and projects that they pay for alone."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"

# Periods of its time, and those that something it pays stands in, whenever that became known.
ALTER = """
ALTER POLICY tenants_project_of_payer ON tenants_project USING ({projects});
ALTER POLICY billing_billingperiod_of_payer ON billing_billingperiod USING ({periods});
"""
READ = ALTER.format(
    projects=f"id IN (SELECT t.project_id FROM billing_periodtotal t WHERE t.payer_id = {MINE})",
    periods=f"""
    EXISTS (SELECT FROM billing_payer y WHERE y.tenant_id = billing_billingperiod.tenant_id AND y.payer_id = {MINE}
            AND billing_billingperiod."end" > y.since::timestamp AT TIME ZONE timezone
            AND (y.until IS NULL OR y.until > y.since
                 AND billing_billingperiod.start < y.until::timestamp AT TIME ZONE timezone))
    OR id IN (SELECT t.period_id FROM billing_periodtotal t WHERE t.payer_id = {MINE})
    OR EXISTS (SELECT FROM billing_invoiceline l
               WHERE l.service_period_id = billing_billingperiod.id AND l.tenant_id = {MINE})""",
)
UNREAD = ALTER.format(
    projects=f"""tenant_id IN (SELECT y.tenant_id FROM billing_payer y
                         WHERE y.payer_id = {MINE} AND (y.until IS NULL OR y.until > y.since))""",
    periods=f"tenant_id IN (SELECT y.tenant_id FROM billing_payer y WHERE y.payer_id = {MINE})",
)

# No tenant's page reads these, and none of their rights is granted: should one ever be, it shows no row.
HISTORIES = (
    *(
        "allowance",
        "archive",
        "automatictopup",
        "billingaccount",
        "bound",
        "commitment",
        "difference",
        "discount",
    ),
    *("dunningpause", "dunningpolicy", "fee", "invoice", "manualline", "parking", "payer", "paylink"),
    *("paymentattempt", "paymentdispute", "payment", "paymentrefund", "price", "savedmethod", "subscription"),
    *("suspendedaccount", "suspension", "topup", "voiding", "walletscheme", "writeoff"),
)
UNSHOWN = (
    *(
        "billing_allowance",
        "billing_closeproof",
        "billing_difference",
        "billing_paylink",
        "billing_walletbooking",
    ),
    *("billing_wallettotal", "tenants_membership", "tenants_membershipevent", "tenants_ownershipevent"),
    *(f"billing_{name}event" for name in HISTORIES),
)


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0053_methods_that_are_known"),
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
        pgtrigger.migrations.RemoveTrigger(
            model_name="planversion",
            name="used_version_is_frozen",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="allowance",
            trigger=pgtrigger.compiler.Trigger(
                name="used_terms_are_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (\n    SELECT 1 FROM billing_planversion v JOIN billing_subscriptionevent s ON s.plan_id = v.plan_id WHERE v.id = OLD.version_id\n) AND EXISTS (\n    SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id AND service_month >= (\n        SELECT date_trunc('month', (effective_from - 2)::timestamp)::date FROM billing_planversion\n        WHERE id = OLD.version_id))\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'allowance' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'usage' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE s.timezone\n      AND l.price_id IN (SELECT p.id FROM billing_price p JOIN billing_allowance a ON a.id = p.allowance_id\n        WHERE a.version_id = OLD.version_id AND a.name = OLD.name)) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="3f596163345df2d41d8df7af736b15effa5d4775",
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
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (\n    SELECT 1 FROM billing_planversion v JOIN billing_subscriptionevent s ON s.plan_id = v.plan_id WHERE v.id = OLD.version_id\n) AND EXISTS (\n    SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id AND service_month >= (\n        SELECT date_trunc('month', (effective_from - 2)::timestamp)::date FROM billing_planversion\n        WHERE id = OLD.version_id))\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'commitment' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'commitment' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE s.timezone\n      AND l.term_id IN (SELECT id FROM billing_commitment WHERE version_id = OLD.version_id)) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="667e875fce3c04bb830f77620d2bd178ada421b6",
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
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (\n    SELECT 1 FROM billing_planversion v JOIN billing_subscriptionevent s ON s.plan_id = v.plan_id WHERE v.id = OLD.version_id\n) AND EXISTS (\n    SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id AND service_month >= (\n        SELECT date_trunc('month', (effective_from - 2)::timestamp)::date FROM billing_planversion\n        WHERE id = OLD.version_id))\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'discount' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'discount' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE s.timezone\n      AND l.term_id = OLD.id) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="f06a845722f0dd005d95b6c56223c5c6306ae053",
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
                    func="\nIF TG_OP = 'UPDATE' AND (to_jsonb(NEW) - 'valid_until') IS NOT DISTINCT FROM (to_jsonb(OLD) - 'valid_until') THEN\n    RETURN NEW;\nEND IF;\nIF OLD.tenant_id IS NULL\n   AND (EXISTS (\n    SELECT 1 FROM billing_planversion v JOIN billing_subscriptionevent s ON s.plan_id = v.plan_id WHERE v.id = OLD.version_id\n) AND EXISTS (\n    SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.version_id AND service_month >= (\n        SELECT date_trunc('month', (effective_from - 2)::timestamp)::date FROM billing_planversion\n        WHERE id = OLD.version_id))\n        OR EXISTS (SELECT 1 FROM billing_invoiceline WHERE kind = 'fee' AND term_id = OLD.id)) THEN\n    RAISE EXCEPTION 'This version of the plan is in use: add a new version.';\nEND IF;\nIF OLD.tenant_id IS NOT NULL AND EXISTS (\n    SELECT 1 FROM billing_invoiceline l\n    JOIN billing_billingperiod s ON s.id = l.service_period_id\n    WHERE s.tenant_id = OLD.tenant_id AND l.kind = 'fee' AND s.\"end\" > OLD.valid_from::timestamp AT TIME ZONE s.timezone\n      AND l.term_id = OLD.id) THEN\n    RAISE EXCEPTION 'The tenant was billed by it: end it and add a new one.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="3d23e49b8ae51263589d501e07b7382b9a872ae0",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_used_terms_are_frozen_29166",
                    table="billing_fee",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="planversion",
            trigger=pgtrigger.compiler.Trigger(
                name="used_version_is_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF (TG_OP = 'DELETE' OR to_jsonb(NEW) IS DISTINCT FROM to_jsonb(OLD))\n   AND (EXISTS (\n    SELECT 1 FROM billing_planversion v JOIN billing_subscriptionevent s ON s.plan_id = v.plan_id WHERE v.id = OLD.id\n) AND EXISTS (\n    SELECT 1 FROM billing_ratedusage WHERE version_id = OLD.id AND service_month >= (\n        SELECT date_trunc('month', (effective_from - 2)::timestamp)::date FROM billing_planversion\n        WHERE id = OLD.id))\n        OR EXISTS (\nSELECT 1 FROM billing_planversion v\nJOIN (SELECT 'fee' AS kind, id, version_id FROM billing_fee\n      UNION ALL SELECT 'commitment', id, version_id FROM billing_commitment\n      UNION ALL SELECT 'discount', id, version_id FROM billing_discount) term ON term.version_id = v.id\nJOIN billing_invoiceline line ON line.kind = term.kind AND line.term_id = term.id\n WHERE v.id = OLD.id)) THEN\n    RAISE EXCEPTION 'Usage has been rated by this version of the plan, or a line billed: add a new version.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="13829efbee02047a78eba232faee4121b19abb67",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_used_version_is_frozen_16a12",
                    table="billing_planversion",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(READ, UNREAD),
        migrations.RunSQL(
            "".join(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;" for table in UNSHOWN),
            "".join(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;" for table in UNSHOWN),
        ),
    ]
