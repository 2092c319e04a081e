"""Lines by hand, and what becomes of a period of nothing."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


PROTECT = """
ALTER TABLE billing_manualline ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_manualline_of_tenant ON billing_manualline FOR SELECT TO clustertab_portal
USING (tenant_id = (SELECT nullif(current_setting('app.tenant_id', true), '')::bigint));
"""  # its pages read the line on the invoice, without who and why: no right on this table is granted
UNPROTECT = """
DROP POLICY billing_manualline_of_tenant ON billing_manualline;
ALTER TABLE billing_manualline DISABLE ROW LEVEL SECURITY;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0019_plan_terms"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0004_zero_invoices"),
    ]

    operations = [
        migrations.CreateModel(
            name="ManualLine",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("description", models.CharField(help_text="As it stands on the invoice.", max_length=400)),
                ("amount", models.BigIntegerField(help_text="Minor units, before tax.")),
                ("currency", models.CharField(max_length=3)),
                ("why", models.TextField(help_text="Kept here; it does not stand on the invoice.")),
                ("by", models.CharField(max_length=200)),
                ("added_on", models.DateField()),
            ],
        ),
        migrations.CreateModel(
            name="ManualLineEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                ("description", models.CharField(help_text="As it stands on the invoice.", max_length=400)),
                ("amount", models.BigIntegerField(help_text="Minor units, before tax.")),
                ("currency", models.CharField(max_length=3)),
                ("why", models.TextField(help_text="Kept here; it does not stand on the invoice.")),
                ("by", models.CharField(max_length=200)),
                ("added_on", models.DateField()),
            ],
            options={
                "abstract": False,
            },
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="seller",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="seller",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="seller",
            name="delete_delete",
        ),
        migrations.AddField(
            model_name="seller",
            name="zero_invoices",
            field=models.CharField(
                choices=[("skip", "No invoice"), ("issue", "An invoice of nothing, which is paid at once")],
                default="skip",
                help_text="What becomes of a period without use or charges; a tenant may differ.",
                max_length=5,
            ),
        ),
        migrations.AddField(
            model_name="sellerevent",
            name="zero_invoices",
            field=models.CharField(
                choices=[("skip", "No invoice"), ("issue", "An invoice of nothing, which is paid at once")],
                default="skip",
                help_text="What becomes of a period without use or charges; a tenant may differ.",
                max_length=5,
            ),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="kind",
            field=models.CharField(
                choices=[
                    ("usage", "Use of a meter at a price"),
                    ("fee", "Flat fee"),
                    ("commitment", "Minimum commitment"),
                    ("discount", "Discount"),
                    ("credit", "Credited by hand"),
                    ("manual", "Added by hand"),
                ],
                default="usage",
                max_length=12,
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="seller",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."bic", NEW."code", NEW."corrections", NEW."credit_prefix", NEW."email", NEW."iban", NEW."id", NEW."invoice_prefix", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."registration", NEW."tax_name", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="e79ce9d11ff27fc39cf3bab8f70cdf8b39768d76",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_b2106",
                    table="billing_seller",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="seller",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."bic", NEW."code", NEW."corrections", NEW."credit_prefix", NEW."email", NEW."iban", NEW."id", NEW."invoice_prefix", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."registration", NEW."tax_name", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="886ddc712bd0d6e1cd547f78c730a9cc261e3d9f",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_9912a",
                    table="billing_seller",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="seller",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id", "zero_invoices") VALUES (OLD."address", OLD."bic", OLD."code", OLD."corrections", OLD."credit_prefix", OLD."email", OLD."iban", OLD."id", OLD."invoice_prefix", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."registration", OLD."tax_name", OLD."vat_id", OLD."zero_invoices"); RETURN NULL;',
                    hash="0098aa7d82f6a37df97c666952bcf39d5464a5d5",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_241c7",
                    table="billing_seller",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="seller",
            constraint=models.CheckConstraint(
                condition=models.Q(("zero_invoices__in", ["skip", "issue"])),
                name="seller_zero_invoices_are_known",
            ),
        ),
        migrations.AddField(
            model_name="manualline",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="manual_lines", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="manuallineevent",
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
            model_name="manuallineevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.manualline",
            ),
        ),
        migrations.AddField(
            model_name="manuallineevent",
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
            model_name="manualline",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount", 0), _negated=True), name="manual_line_is_not_nothing"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="manualline",
            trigger=pgtrigger.compiler.Trigger(
                name="manual_line_is_kept",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'UPDATE' THEN\n    RAISE EXCEPTION 'A manual line is not changed: remove it and add another.';\nEND IF;\nIF EXISTS (SELECT FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id\n           WHERE l.kind = 'manual' AND l.term_id = OLD.id AND i.state IN ('issued', 'void')) THEN\n    RAISE EXCEPTION 'This line was billed: credit the invoice, or add a line that takes it off.';\nEND IF;\nRETURN OLD;\n",
                    hash="ecae92b9053b5429422f736b7f3eab5e4eb9b3f8",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_manual_line_is_kept_c4295",
                    table="billing_manualline",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="manualline",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_manuallineevent" ("added_on", "amount", "by", "currency", "description", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id", "why") VALUES (NEW."added_on", NEW."amount", NEW."by", NEW."currency", NEW."description", NEW."id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."tenant_id", NEW."why"); RETURN NULL;',
                    hash="f8576abd6fcfafa599921a88bf9acd4035bd3fc9",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_14cac",
                    table="billing_manualline",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="manualline",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_manuallineevent" ("added_on", "amount", "by", "currency", "description", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id", "why") VALUES (NEW."added_on", NEW."amount", NEW."by", NEW."currency", NEW."description", NEW."id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."tenant_id", NEW."why"); RETURN NULL;',
                    hash="4b0fa7008172e73a97977fc976c42785961c6892",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_7e9f9",
                    table="billing_manualline",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="manualline",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_manuallineevent" ("added_on", "amount", "by", "currency", "description", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id", "why") VALUES (OLD."added_on", OLD."amount", OLD."by", OLD."currency", OLD."description", OLD."id", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."tenant_id", OLD."why"); RETURN NULL;',
                    hash="8c739642e3ac7450d1a5ec82e21b937316f8ec1a",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_3ad02",
                    table="billing_manualline",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="manuallineevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="33070137ecb130dd8916aa93200c7b4b6a5a3316",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_35572",
                    table="billing_manuallineevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(PROTECT, UNPROTECT),
    ]
