"""What a credit balance paid when an invoice was issued stands on the invoice."""

import django.db.models.expressions
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0056_a_payer_ends"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name="invoice",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="invoice",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="invoice",
            name="delete_delete",
        ),
        migrations.AddField(
            model_name="invoice",
            name="from_credit",
            field=models.BigIntegerField(
                default=0, help_text="Minor units that the tenant's credit balance paid when it was issued."
            ),
        ),
        migrations.AddField(
            model_name="invoiceevent",
            name="from_credit",
            field=models.BigIntegerField(
                default=0, help_text="Minor units that the tenant's credit balance paid when it was issued."
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_invoiceevent" ("buyer", "currency", "due_on", "from_credit", "id", "issued_on", "kind", "number", "original_id", "period_end", "period_id", "period_start", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prepaid", "rated_through", "reason", "replaces_id", "seller", "state", "subtotal", "tax", "tax_name", "tax_rate", "tenant_id", "terms", "timezone", "total") VALUES (NEW."buyer", NEW."currency", NEW."due_on", NEW."from_credit", NEW."id", NEW."issued_on", NEW."kind", NEW."number", NEW."original_id", NEW."period_end", NEW."period_id", NEW."period_start", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."prepaid", NEW."rated_through", NEW."reason", NEW."replaces_id", NEW."seller", NEW."state", NEW."subtotal", NEW."tax", NEW."tax_name", NEW."tax_rate", NEW."tenant_id", NEW."terms", NEW."timezone", NEW."total"); RETURN NULL;',
                    hash="09d1b5be94351b2297fcb805005cb203817f2d9a",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_0c624",
                    table="billing_invoice",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_invoiceevent" ("buyer", "currency", "due_on", "from_credit", "id", "issued_on", "kind", "number", "original_id", "period_end", "period_id", "period_start", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prepaid", "rated_through", "reason", "replaces_id", "seller", "state", "subtotal", "tax", "tax_name", "tax_rate", "tenant_id", "terms", "timezone", "total") VALUES (NEW."buyer", NEW."currency", NEW."due_on", NEW."from_credit", NEW."id", NEW."issued_on", NEW."kind", NEW."number", NEW."original_id", NEW."period_end", NEW."period_id", NEW."period_start", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."prepaid", NEW."rated_through", NEW."reason", NEW."replaces_id", NEW."seller", NEW."state", NEW."subtotal", NEW."tax", NEW."tax_name", NEW."tax_rate", NEW."tenant_id", NEW."terms", NEW."timezone", NEW."total"); RETURN NULL;',
                    hash="a5ecfd01eb7fcda8cf9e6071fa0c4cd6cce6b8d9",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_28c43",
                    table="billing_invoice",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_invoiceevent" ("buyer", "currency", "due_on", "from_credit", "id", "issued_on", "kind", "number", "original_id", "period_end", "period_id", "period_start", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prepaid", "rated_through", "reason", "replaces_id", "seller", "state", "subtotal", "tax", "tax_name", "tax_rate", "tenant_id", "terms", "timezone", "total") VALUES (OLD."buyer", OLD."currency", OLD."due_on", OLD."from_credit", OLD."id", OLD."issued_on", OLD."kind", OLD."number", OLD."original_id", OLD."period_end", OLD."period_id", OLD."period_start", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."prepaid", OLD."rated_through", OLD."reason", OLD."replaces_id", OLD."seller", OLD."state", OLD."subtotal", OLD."tax", OLD."tax_name", OLD."tax_rate", OLD."tenant_id", OLD."terms", OLD."timezone", OLD."total"); RETURN NULL;',
                    hash="5adb081e4237f4f9f2d1ab39dcd75ad37a85cd50",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_6493d",
                    table="billing_invoice",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("from_credit", 0),
                    models.Q(
                        models.Q(("kind", "credit-note"), _negated=True),
                        ("from_credit__gt", 0),
                        (
                            "from_credit__lte",
                            django.db.models.expressions.CombinedExpression(
                                models.F("total"), "-", models.F("prepaid")
                            ),
                        ),
                    ),
                    _connector="OR",
                ),
                name="credit_pays_a_part_of_what_is_left",
            ),
        ),
    ]
