"""Who pays for whom: what is rated for another to pay says so, and that one may read what it pays for."""

import django.contrib.postgres.constraints
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"

RATED = "ALTER TABLE billing_ratedusage ADD COLUMN payer_id bigint"
UNRATED = "ALTER TABLE billing_ratedusage DROP COLUMN payer_id"

# Who pays sees the totals, the projects and the periods of what it pays for; none of the jobs. Names alone of the other
# side stand in the view: the table of tenants shows each its own row.
USERS = f"(SELECT y.tenant_id FROM billing_payer y WHERE y.payer_id = {MINE})"
PROTECT = f"""
ALTER TABLE billing_payer ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_payer_of_tenant ON billing_payer FOR SELECT TO clustertab_portal
    USING (tenant_id = {MINE} OR payer_id = {MINE});
GRANT SELECT ON billing_payer TO clustertab_portal;
CREATE POLICY billing_periodtotal_of_payer ON billing_periodtotal FOR SELECT TO clustertab_portal
    USING (payer_id = {MINE});
CREATE POLICY tenants_project_of_payer ON tenants_project FOR SELECT TO clustertab_portal
    USING (tenant_id IN (SELECT y.tenant_id FROM billing_payer y
                         WHERE y.payer_id = {MINE} AND (y.until IS NULL OR y.until > y.since)));
CREATE POLICY billing_billingperiod_of_payer ON billing_billingperiod FOR SELECT TO clustertab_portal
    USING (tenant_id IN {USERS});
CREATE VIEW billing_paying WITH (security_barrier) AS
SELECT y.tenant_id, y.payer_id, y.since, y.until, t.name AS tenant, t.slug AS tenant_slug, p.name AS payer
FROM billing_payer y JOIN tenants_tenant t ON t.id = y.tenant_id JOIN tenants_tenant p ON p.id = y.payer_id
WHERE y.tenant_id = {MINE} OR y.payer_id = {MINE};
GRANT SELECT ON billing_paying TO clustertab_portal;
"""
UNPROTECT = """
DROP VIEW billing_paying;
DROP POLICY billing_billingperiod_of_payer ON billing_billingperiod;
DROP POLICY tenants_project_of_payer ON tenants_project;
DROP POLICY billing_periodtotal_of_payer ON billing_periodtotal;
REVOKE SELECT ON billing_payer FROM clustertab_portal;
DROP POLICY billing_payer_of_tenant ON billing_payer;
ALTER TABLE billing_payer DISABLE ROW LEVEL SECURITY;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0044_words_of_fields"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [
        migrations.CreateModel(
            name="Payer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("since", models.DateField(help_text="Its first day, in the tenant's zone.")),
                (
                    "until",
                    models.DateField(
                        blank=True, help_text="The day from which it no longer pays.", null=True
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="PayerEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                ("since", models.DateField(help_text="Its first day, in the tenant's zone.")),
                (
                    "until",
                    models.DateField(
                        blank=True, help_text="The day from which it no longer pays.", null=True
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.RemoveConstraint(
            model_name="periodtotal",
            name="period_total_is_kept_once",
        ),
        migrations.AddField(
            model_name="periodtotal",
            name="payer",
            field=models.ForeignKey(
                db_index=False,
                help_text="Whose invoice it goes on; empty: the tenant's own.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="project",
            field=models.CharField(
                blank=True,
                help_text="Frozen name, behind that of the tenant it was used by where that is another; empty: of the whole tenant.",
                max_length=420,
            ),
        ),
        migrations.AddIndex(
            model_name="periodtotal",
            index=models.Index(
                condition=models.Q(("payer__isnull", False)),
                fields=["payer", "tenant"],
                name="totals_that_others_pay",
            ),
        ),
        migrations.AddConstraint(
            model_name="periodtotal",
            constraint=models.UniqueConstraint(
                fields=(
                    "tenant",
                    "period",
                    "project",
                    "gpu_model",
                    "resource",
                    "verdict",
                    "price_id",
                    "share_den",
                    "payer",
                ),
                name="period_total_is_kept_once",
                nulls_distinct=False,
            ),
        ),
        migrations.AddField(
            model_name="payer",
            name="payer",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="pays_for",
                to="tenants.tenant",
                verbose_name="paid by",
            ),
        ),
        migrations.AddField(
            model_name="payer",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="payers", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="payerevent",
            name="payer",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="tenants.tenant",
                verbose_name="paid by",
            ),
        ),
        migrations.AddField(
            model_name="payerevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="payerevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.payer",
            ),
        ),
        migrations.AddField(
            model_name="payerevent",
            name="tenant",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="payer",
            constraint=models.CheckConstraint(
                condition=models.Q(("tenant", models.F("payer")), _negated=True),
                name="payer_is_another_tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="payer",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("until__isnull", True), ("until__gte", models.F("since")), _connector="OR"
                ),
                name="payer_ends_no_earlier_than_it_begins",
            ),
        ),
        migrations.AddConstraint(
            model_name="payer",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                expressions=[
                    (
                        models.Func(
                            models.F("tenant"), models.F("tenant"), models.Value("[]"), function="int8range"
                        ),
                        "&&",
                    ),
                    (models.Func("since", "until", models.Value("[)"), function="daterange"), "&&"),
                ],
                name="tenant_has_one_payer_at_a_time",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="payer",
            trigger=pgtrigger.compiler.Trigger(
                name="payer_has_no_payer_and_is_kept",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'DELETE' THEN\n    RAISE EXCEPTION 'Who paid is kept: end it on the day on which it began.';\nEND IF;\nIF TG_OP = 'UPDATE'\n   AND (OLD.tenant_id, OLD.payer_id, OLD.since) IS DISTINCT FROM (NEW.tenant_id, NEW.payer_id, NEW.since) THEN\n    RAISE EXCEPTION 'Who pays from when stays: end it, and add another.';\nEND IF;\nPERFORM FROM tenants_tenant WHERE id IN (NEW.tenant_id, NEW.payer_id) ORDER BY id FOR NO KEY UPDATE;\nIF EXISTS (SELECT FROM billing_payer p\n           WHERE p.id <> NEW.id AND (p.tenant_id = NEW.payer_id OR p.payer_id = NEW.tenant_id)\n           AND daterange(p.since, p.until, '[)') && daterange(NEW.since, NEW.until, '[)')) THEN\n    RAISE EXCEPTION 'Whoever pays for another tenant has no payer at the same time.';\nEND IF;\nRETURN NEW;\n",
                    hash="f4fa7d25c706ba0567a623b00f904042f3cc6706",
                    operation="INSERT OR UPDATE OR DELETE",
                    pgid="pgtrigger_payer_has_no_payer_and_is_kept_c54a0",
                    table="billing_payer",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="payer",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_payerevent" ("id", "payer_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "since", "tenant_id", "until") VALUES (NEW."id", NEW."payer_id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."since", NEW."tenant_id", NEW."until"); RETURN NULL;',
                    hash="d82e149f1c311c01f85b2e0a4a758b73a7d9a0a2",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_d2e41",
                    table="billing_payer",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="payer",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_payerevent" ("id", "payer_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "since", "tenant_id", "until") VALUES (NEW."id", NEW."payer_id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."since", NEW."tenant_id", NEW."until"); RETURN NULL;',
                    hash="7e2c2896a48bac0a48286d4a2064655ba32b2a57",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_696a1",
                    table="billing_payer",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="payer",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_payerevent" ("id", "payer_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "since", "tenant_id", "until") VALUES (OLD."id", OLD."payer_id", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."since", OLD."tenant_id", OLD."until"); RETURN NULL;',
                    hash="de9ab58914a7276a7d0dbad9c259874d917f5f5b",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_2b451",
                    table="billing_payer",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="payerevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="f4980b6b94b49ede2a249ad98d49631bccc0608d",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_3f505",
                    table="billing_payerevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(RATED, UNRATED),
        migrations.RunSQL(PROTECT, UNPROTECT),
    ]
