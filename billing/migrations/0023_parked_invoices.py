"""What is issued without a look, and what waits for approval."""

import django.core.validators
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

PROTECT = """
ALTER TABLE billing_bound ENABLE ROW LEVEL SECURITY;
ALTER TABLE billing_parking ENABLE ROW LEVEL SECURITY;
"""  # no tenant's page reads them: no right is granted, and no policy shows a row
UNPROTECT = """
ALTER TABLE billing_bound DISABLE ROW LEVEL SECURITY;
ALTER TABLE billing_parking DISABLE ROW LEVEL SECURITY;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0022_lines_by_hand"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0004_zero_invoices"),
    ]

    operations = [
        migrations.CreateModel(
            name="Bound",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "measure",
                    models.CharField(
                        choices=[
                            ("times-usual", "Times the mean of the last three invoices"),
                            ("lines", "Lines"),
                            ("total", "Total, with tax"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "currency",
                    models.CharField(blank=True, help_text="Of a total; empty otherwise.", max_length=3),
                ),
                (
                    "limit",
                    models.DecimalField(
                        decimal_places=3,
                        help_text="What lies on it is still issued. 0: no bound.",
                        max_digits=20,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="BoundEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                (
                    "measure",
                    models.CharField(
                        choices=[
                            ("times-usual", "Times the mean of the last three invoices"),
                            ("lines", "Lines"),
                            ("total", "Total, with tax"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "currency",
                    models.CharField(blank=True, help_text="Of a total; empty otherwise.", max_length=3),
                ),
                (
                    "limit",
                    models.DecimalField(
                        decimal_places=3,
                        help_text="What lies on it is still issued. 0: no bound.",
                        max_digits=20,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Parking",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting for approval"),
                            ("approved", "Approved"),
                            ("refused", "Refused"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("reason", models.TextField(help_text="Which bounds it is beyond.")),
                ("currency", models.CharField(max_length=3)),
                (
                    "total",
                    models.BigIntegerField(
                        help_text="Minor units, with tax: of all that the close would bill."
                    ),
                ),
                ("lines", models.PositiveIntegerField()),
                ("since", models.DateTimeField(help_text="When a close parked it with these figures.")),
                (
                    "by",
                    models.CharField(
                        blank=True, help_text="Who decided; empty while it waits.", max_length=200
                    ),
                ),
                ("why", models.TextField(blank=True)),
                ("decided_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="ParkingEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting for approval"),
                            ("approved", "Approved"),
                            ("refused", "Refused"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("reason", models.TextField(help_text="Which bounds it is beyond.")),
                ("currency", models.CharField(max_length=3)),
                (
                    "total",
                    models.BigIntegerField(
                        help_text="Minor units, with tax: of all that the close would bill."
                    ),
                ),
                ("lines", models.PositiveIntegerField()),
                ("since", models.DateTimeField(help_text="When a close parked it with these figures.")),
                (
                    "by",
                    models.CharField(
                        blank=True, help_text="Who decided; empty while it waits.", max_length=200
                    ),
                ),
                ("why", models.TextField(blank=True)),
                ("decided_at", models.DateTimeField(null=True)),
            ],
            options={
                "abstract": False,
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="parked_invoice_is_issued_with_approval",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.kind <> 'credit-note')",
                    func="\nIF EXISTS (SELECT FROM billing_parking p WHERE p.period_id = NEW.period_id\n           AND (p.state <> 'approved' OR p.currency <> NEW.currency OR p.total < NEW.total)) THEN\n    RAISE EXCEPTION 'Invoice % is beyond what was approved: approve it first.', NEW.number;\nEND IF;\nRETURN NEW;\n",
                    hash="665b6cf2a1f8f9a8f28e4f63236371c7b39318ae",
                    operation="UPDATE",
                    pgid="pgtrigger_parked_invoice_is_issued_with_approval_33e0d",
                    table="billing_invoice",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddField(
            model_name="bound",
            name="tenant",
            field=models.ForeignKey(
                blank=True,
                help_text="Empty: of every tenant that has no such bound of its own.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="bounds",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="boundevent",
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
            model_name="boundevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.bound",
            ),
        ),
        migrations.AddField(
            model_name="boundevent",
            name="tenant",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                help_text="Empty: of every tenant that has no such bound of its own.",
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="parking",
            name="period",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="parking",
                to="billing.billingperiod",
            ),
        ),
        migrations.AddField(
            model_name="parking",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="parkingevent",
            name="period",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="billing.billingperiod",
            ),
        ),
        migrations.AddField(
            model_name="parkingevent",
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
            model_name="parkingevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.parking",
            ),
        ),
        migrations.AddField(
            model_name="parkingevent",
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
            model_name="bound",
            constraint=models.UniqueConstraint(
                fields=("tenant", "measure", "currency"), name="bound_is_set_once", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="bound",
            constraint=models.CheckConstraint(
                condition=models.Q(("limit__gte", 0)), name="bound_is_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="bound",
            constraint=models.CheckConstraint(
                condition=models.Q(("measure__in", ["times-usual", "lines", "total"])),
                name="bound_measure_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="bound",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("measure", "total"), models.Q(("currency", ""), _negated=True)),
                    models.Q(models.Q(("measure", "total"), _negated=True), ("currency", "")),
                    _connector="OR",
                ),
                name="bound_of_a_total_has_a_currency",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="bound",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_boundevent" ("currency", "id", "limit", "measure", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id") VALUES (NEW."currency", NEW."id", NEW."limit", NEW."measure", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."tenant_id"); RETURN NULL;',
                    hash="52eebcca65287ebfe0d030123eeb240c575bf4fd",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_a71d3",
                    table="billing_bound",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="bound",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_boundevent" ("currency", "id", "limit", "measure", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id") VALUES (NEW."currency", NEW."id", NEW."limit", NEW."measure", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."tenant_id"); RETURN NULL;',
                    hash="0d0b97578faf51b13bc47449e932e9adc8d42db0",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_34c94",
                    table="billing_bound",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="bound",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_boundevent" ("currency", "id", "limit", "measure", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "tenant_id") VALUES (OLD."currency", OLD."id", OLD."limit", OLD."measure", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."tenant_id"); RETURN NULL;',
                    hash="9a5420f906b19df760f091062c3bfde1790058a4",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_2abd3",
                    table="billing_bound",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="boundevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="c5723087c3eeb8e458df861b60d34b6086170cfb",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_41929",
                    table="billing_boundevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="parking",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("by", ""), ("decided_at__isnull", True), ("state", "waiting"), ("why", "")),
                    models.Q(
                        ("decided_at__isnull", False),
                        ("state__in", ["approved", "refused"]),
                        models.Q(("by", ""), _negated=True),
                        models.Q(("why", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="parking_says_who_decided_and_why",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="parking",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_parkingevent" ("by", "currency", "decided_at", "id", "lines", "period_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "since", "state", "tenant_id", "total", "why") VALUES (NEW."by", NEW."currency", NEW."decided_at", NEW."id", NEW."lines", NEW."period_id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."since", NEW."state", NEW."tenant_id", NEW."total", NEW."why"); RETURN NULL;',
                    hash="51ead31a28a468864669538e02506c357778c345",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_7cf81",
                    table="billing_parking",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="parking",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_parkingevent" ("by", "currency", "decided_at", "id", "lines", "period_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "since", "state", "tenant_id", "total", "why") VALUES (NEW."by", NEW."currency", NEW."decided_at", NEW."id", NEW."lines", NEW."period_id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."since", NEW."state", NEW."tenant_id", NEW."total", NEW."why"); RETURN NULL;',
                    hash="ba4f71a69e85f971dcca57792b977b66aa37263b",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_80323",
                    table="billing_parking",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="parking",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_parkingevent" ("by", "currency", "decided_at", "id", "lines", "period_id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "since", "state", "tenant_id", "total", "why") VALUES (OLD."by", OLD."currency", OLD."decided_at", OLD."id", OLD."lines", OLD."period_id", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."since", OLD."state", OLD."tenant_id", OLD."total", OLD."why"); RETURN NULL;',
                    hash="1d65c37061037f6c9e46888e107b05d6fd9e8bd3",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_a4d63",
                    table="billing_parking",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="parkingevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="f7e1c5c41c5f5044462e387bd057a60bcd645227",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_de8b8",
                    table="billing_parkingevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.RunSQL(PROTECT, UNPROTECT),
    ]
