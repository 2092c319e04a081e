"""What becomes of a period of nothing, where a tenant differs from its seller."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0003_policy_of_corrections"),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name="tenant",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="tenant",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="tenant",
            name="delete_delete",
        ),
        migrations.AddField(
            model_name="tenant",
            name="zero_invoices",
            field=models.CharField(
                blank=True,
                choices=[("skip", "No invoice"), ("issue", "An invoice of nothing, which is paid at once")],
                help_text="Empty: as the seller does.",
                max_length=5,
            ),
        ),
        migrations.AddField(
            model_name="tenantevent",
            name="zero_invoices",
            field=models.CharField(
                blank=True,
                choices=[("skip", "No invoice"), ("issue", "An invoice of nothing, which is paid at once")],
                help_text="Empty: as the seller does.",
                max_length=5,
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="tenant",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "tenants_tenantevent" ("address", "anchor_day", "corrections", "email", "id", "name", "payment_terms_days", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "purchase_order", "slug", "tax_rate", "timezone", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."anchor_day", NEW."corrections", NEW."email", NEW."id", NEW."name", NEW."payment_terms_days", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."purchase_order", NEW."slug", NEW."tax_rate", NEW."timezone", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="6c6e4895f839b1ad8d77a839dd91da50d4dd491f",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_0f00f",
                    table="tenants_tenant",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="tenant",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "tenants_tenantevent" ("address", "anchor_day", "corrections", "email", "id", "name", "payment_terms_days", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "purchase_order", "slug", "tax_rate", "timezone", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."anchor_day", NEW."corrections", NEW."email", NEW."id", NEW."name", NEW."payment_terms_days", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."purchase_order", NEW."slug", NEW."tax_rate", NEW."timezone", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="2c365df350bb7a7e07be9ef8ce846ac383d281af",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_8ddba",
                    table="tenants_tenant",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="tenant",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "tenants_tenantevent" ("address", "anchor_day", "corrections", "email", "id", "name", "payment_terms_days", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "purchase_order", "slug", "tax_rate", "timezone", "vat_id", "zero_invoices") VALUES (OLD."address", OLD."anchor_day", OLD."corrections", OLD."email", OLD."id", OLD."name", OLD."payment_terms_days", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."purchase_order", OLD."slug", OLD."tax_rate", OLD."timezone", OLD."vat_id", OLD."zero_invoices"); RETURN NULL;',
                    hash="ccb058651ca1dfbb26c80cd8e1ba36a2539ff413",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_e3c84",
                    table="tenants_tenant",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(("zero_invoices__in", ["", "skip", "issue"])),
                name="tenant_zero_invoices_are_known",
            ),
        ),
    ]
