"""Closes that operators ask for, and what became of each tenant in them."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

PROTECT = """
ALTER TABLE billing_closerun ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_closeresult ENABLE ROW LEVEL SECURITY;
"""  # no tenant's page reads them: no right is granted, and no policy shows a row
UNPROTECT = """
ALTER TABLE billing_closerun DISABLE ROW LEVEL SECURITY;
ALTER TABLE billing_closeresult DISABLE ROW LEVEL SECURITY;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0029_collecting"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0004_zero_invoices"),
    ]

    operations = [
        migrations.CreateModel(
            name="CloseRunEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                ("month", models.CharField(help_text="2026-03: in which the periods start.", max_length=7)),
                (
                    "kind",
                    models.CharField(choices=[("rehearsal", "Rehearsal"), ("issue", "Close")], max_length=9),
                ),
                ("by", models.CharField(max_length=200)),
                (
                    "asked_at",
                    models.DateTimeField(help_text="The moment of the close, which dates the invoices."),
                ),
                (
                    "accept_incomplete",
                    models.TextField(blank=True, help_text="Why it bills although usage may be missing."),
                ),
                ("total", models.PositiveIntegerField(help_text="Tenants.")),
                ("ended_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True, help_text="Why it was given up.")),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="CloseRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.CharField(help_text="2026-03: in which the periods start.", max_length=7)),
                (
                    "kind",
                    models.CharField(choices=[("rehearsal", "Rehearsal"), ("issue", "Close")], max_length=9),
                ),
                ("by", models.CharField(max_length=200)),
                (
                    "asked_at",
                    models.DateTimeField(help_text="The moment of the close, which dates the invoices."),
                ),
                (
                    "accept_incomplete",
                    models.TextField(blank=True, help_text="Why it bills although usage may be missing."),
                ),
                ("total", models.PositiveIntegerField(help_text="Tenants.")),
                ("done", models.PositiveIntegerField(default=0, help_text="Tenants.")),
                ("begun_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "attempts",
                    models.PositiveSmallIntegerField(default=0, help_text="How often a worker took it up."),
                ),
                ("error", models.TextField(blank=True, help_text="Why it was given up.")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("month",),
                        name="month_is_closed_by_one_at_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["rehearsal", "issue"])), name="close_kind_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("done__lte", models.F("total"))), name="close_is_done_once"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CloseResult",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "outcome",
                    models.CharField(help_text="As the close tells it, such as 'blocked'.", max_length=20),
                ),
                ("number", models.CharField(blank=True, max_length=40)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("total", models.BigIntegerField(help_text="Minor units, with tax.", null=True)),
                ("told", models.JSONField(help_text="As `close_period --json` tells it.")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="results",
                        to="billing.closerun",
                    ),
                ),
            ],
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="closerun",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_closerunevent" ("accept_incomplete", "asked_at", "by", "ended_at", "error", "id", "kind", "month", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "total") VALUES (NEW."accept_incomplete", NEW."asked_at", NEW."by", NEW."ended_at", NEW."error", NEW."id", NEW."kind", NEW."month", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."total"); RETURN NULL;',
                    hash="633874726c4e3e5e1da32767ed32966cc204ef10",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_af70d",
                    table="billing_closerun",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="closerun",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."accept_incomplete" IS DISTINCT FROM (NEW."accept_incomplete") OR OLD."asked_at" IS DISTINCT FROM (NEW."asked_at") OR OLD."by" IS DISTINCT FROM (NEW."by") OR OLD."ended_at" IS DISTINCT FROM (NEW."ended_at") OR OLD."error" IS DISTINCT FROM (NEW."error") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."kind" IS DISTINCT FROM (NEW."kind") OR OLD."month" IS DISTINCT FROM (NEW."month") OR OLD."total" IS DISTINCT FROM (NEW."total"))',
                    func='INSERT INTO "billing_closerunevent" ("accept_incomplete", "asked_at", "by", "ended_at", "error", "id", "kind", "month", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "total") VALUES (NEW."accept_incomplete", NEW."asked_at", NEW."by", NEW."ended_at", NEW."error", NEW."id", NEW."kind", NEW."month", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."total"); RETURN NULL;',
                    hash="1cb5f918cbd2ea76e3a51d5b88eb0db6d47066ca",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_0b7c3",
                    table="billing_closerun",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="closerun",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_closerunevent" ("accept_incomplete", "asked_at", "by", "ended_at", "error", "id", "kind", "month", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "total") VALUES (OLD."accept_incomplete", OLD."asked_at", OLD."by", OLD."ended_at", OLD."error", OLD."id", OLD."kind", OLD."month", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."total"); RETURN NULL;',
                    hash="cc590f93e73cad2a3546fe7d7c1b970c3b7557ad",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_523f3",
                    table="billing_closerun",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="closerunevent",
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
            model_name="closerunevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.closerun",
            ),
        ),
        migrations.AddIndex(
            model_name="closeresult",
            index=models.Index(fields=["run", "outcome", "id"], name="results_by_outcome"),
        ),
        migrations.AddConstraint(
            model_name="closeresult",
            constraint=models.UniqueConstraint(
                fields=("run", "tenant"), name="tenant_is_closed_once_in_a_run"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="closerunevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="4b64ef428a525ae21844470a040667e27d5a7b73",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_90b44",
                    table="billing_closerunevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(PROTECT, UNPROTECT),
    ]
