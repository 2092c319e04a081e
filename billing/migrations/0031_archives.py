"""Tenants that have left."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

PROTECT = (
    "ALTER TABLE billing_archive ENABLE ROW LEVEL SECURITY"  # no tenant's page reads it: no right is granted
)
UNPROTECT = "ALTER TABLE billing_archive DISABLE ROW LEVEL SECURITY"


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0030_closes_asked_for"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [
        migrations.CreateModel(
            name="Archive",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("by", models.CharField(max_length=200)),
                ("why", models.TextField()),
                (
                    "erased_at",
                    models.DateTimeField(help_text="When what was kept of its people was erased.", null=True),
                ),
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="archive",
                        to="tenants.tenant",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ArchiveEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("by", models.CharField(max_length=200)),
                ("why", models.TextField()),
                (
                    "erased_at",
                    models.DateTimeField(help_text="When what was kept of its people was erased.", null=True),
                ),
                (
                    "pgh_context",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="pghistory.context",
                    ),
                ),
                (
                    "pgh_obj",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="events",
                        to="billing.archive",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        related_query_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.AddConstraint(
            model_name="archive",
            constraint=models.CheckConstraint(
                condition=models.Q(models.Q(("by", ""), _negated=True), models.Q(("why", ""), _negated=True)),
                name="archive_says_who_and_why",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="archive",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_archiveevent" ("at", "by", "erased_at", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id", "why") VALUES (NEW."at", NEW."by", NEW."erased_at", NEW."id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."tenant_id", NEW."why"); RETURN NULL;',
                    hash="60a63086a30ddd572bb520a4620585a88cd6e6ea",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_4bf03",
                    table="billing_archive",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="archive",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_archiveevent" ("at", "by", "erased_at", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id", "why") VALUES (NEW."at", NEW."by", NEW."erased_at", NEW."id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."tenant_id", NEW."why"); RETURN NULL;',
                    hash="cfc54e87fa0ec11a37af2e4f1185a939d0ba7357",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_d3b57",
                    table="billing_archive",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="archive",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_archiveevent" ("at", "by", "erased_at", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id", "why") VALUES (OLD."at", OLD."by", OLD."erased_at", OLD."id", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."tenant_id", OLD."why"); RETURN NULL;',
                    hash="1b55e89c432734d275aa4ecb8d08ece332f75c6a",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_a6148",
                    table="billing_archive",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="archiveevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="cdad0ac5faec5db86a1af7b519ade9e0a747efc0",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_3b9d7",
                    table="billing_archiveevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(PROTECT, UNPROTECT),
    ]
