"""Credit notes, what lines and documents were taxed as, and that an invoice is void."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


BACKFILL = """
ALTER TABLE billing_invoiceline DISABLE TRIGGER USER;  -- what was issued gains how it was taxed, and changes in nothing
UPDATE billing_invoiceline l
SET tax_rate = i.tax_rate, tax_category = CASE WHEN i.tax_rate > 0 THEN 'S' ELSE 'Z' END
FROM billing_invoice i WHERE i.id = l.invoice_id;
ALTER TABLE billing_invoiceline ENABLE TRIGGER USER;
INSERT INTO billing_invoicetax (invoice_id, tenant_id, category, rate, net, tax)
SELECT id, tenant_id, CASE WHEN tax_rate > 0 THEN 'S' ELSE 'Z' END, tax_rate, subtotal, tax FROM billing_invoice;
"""

MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"


def _protect(table: str) -> tuple[str, str]:
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY {table}_of_tenant ON {table} FOR SELECT TO clustertab_portal USING (tenant_id = {MINE});"
        f"GRANT SELECT ON {table} TO clustertab_portal;",
        f"REVOKE SELECT ON {table} FROM clustertab_portal;"
        f"DROP POLICY {table}_of_tenant ON {table};"
        f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0017_jobs_by_end"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0003_policy_of_corrections"),
    ]

    operations = [
        migrations.CreateModel(
            name="InvoiceTax",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "category",
                    models.CharField(
                        choices=[
                            ("S", "Taxed"),
                            ("Z", "Zero-rated"),
                            ("E", "Exempt"),
                            ("AE", "Reverse charge"),
                            ("O", "Outside the scope of tax"),
                        ],
                        max_length=2,
                    ),
                ),
                ("rate", models.DecimalField(decimal_places=3, help_text="Per cent.", max_digits=6)),
                ("net", models.BigIntegerField(help_text="Minor units.")),
                ("tax", models.BigIntegerField(help_text="Minor units.")),
            ],
        ),
        migrations.CreateModel(
            name="Voiding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("on", models.DateField()),
                ("reason", models.TextField()),
                ("by", models.CharField(max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name="VoidingEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                ("on", models.DateField()),
                ("reason", models.TextField()),
                ("by", models.CharField(max_length=200)),
            ],
            options={
                "abstract": False,
            },
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="invoice",
            name="issued_invoice_is_frozen",
        ),
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
        migrations.RemoveConstraint(
            model_name="invoice",
            name="one_invoice_per_tenant_and_period",
        ),
        migrations.AddField(
            model_name="invoice",
            name="kind",
            field=models.CharField(
                choices=[
                    ("invoice", "Invoice"),
                    ("correction", "Invoice of corrections"),
                    ("credit-note", "Credit note"),
                ],
                default="invoice",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="invoice",
            name="original",
            field=models.ForeignKey(
                help_text="The invoice that a credit note takes back from.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="credit_notes",
                to="billing.invoice",
            ),
        ),
        migrations.AddField(
            model_name="invoice",
            name="reason",
            field=models.TextField(blank=True, help_text="Why a credit note was made."),
        ),
        migrations.AddField(
            model_name="invoice",
            name="replaces",
            field=models.ForeignKey(
                help_text="The void invoice of the same period that this one stands for.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="replacements",
                to="billing.invoice",
            ),
        ),
        migrations.AddField(
            model_name="invoiceevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("invoice", "Invoice"),
                    ("correction", "Invoice of corrections"),
                    ("credit-note", "Credit note"),
                ],
                default="invoice",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="invoiceevent",
            name="original",
            field=models.ForeignKey(
                db_constraint=False,
                help_text="The invoice that a credit note takes back from.",
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="billing.invoice",
            ),
        ),
        migrations.AddField(
            model_name="invoiceevent",
            name="reason",
            field=models.TextField(blank=True, help_text="Why a credit note was made."),
        ),
        migrations.AddField(
            model_name="invoiceevent",
            name="replaces",
            field=models.ForeignKey(
                db_constraint=False,
                help_text="The void invoice of the same period that this one stands for.",
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="billing.invoice",
            ),
        ),
        migrations.AddField(
            model_name="invoiceline",
            name="original",
            field=models.ForeignKey(
                help_text="The line of an issued invoice that this one takes back from.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="credits",
                to="billing.invoiceline",
            ),
        ),
        migrations.AddField(
            model_name="invoiceline",
            name="tax_category",
            field=models.CharField(
                choices=[
                    ("S", "Taxed"),
                    ("Z", "Zero-rated"),
                    ("E", "Exempt"),
                    ("AE", "Reverse charge"),
                    ("O", "Outside the scope of tax"),
                ],
                default="S",
                max_length=2,
            ),
        ),
        migrations.AddField(
            model_name="invoiceline",
            name="tax_rate",
            field=models.DecimalField(decimal_places=3, default=0, help_text="Per cent.", max_digits=6),
        ),
        migrations.AddField(
            model_name="seller",
            name="corrections",
            field=models.CharField(
                choices=[
                    ("next-invoice", "On the next invoice"),
                    (
                        "credit-note",
                        "What was too much on a credit note, what was missing on the next invoice",
                    ),
                    (
                        "own-invoice",
                        "What was too much on a credit note, what was missing on an invoice of its own",
                    ),
                ],
                default="next-invoice",
                help_text="Where usage goes that becomes known, or changes, after its invoice; a tenant may differ.",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="seller",
            name="credit_prefix",
            field=models.CharField(
                default="CN", help_text="What the numbers of credit notes begin with.", max_length=12
            ),
        ),
        migrations.AddField(
            model_name="sellerevent",
            name="corrections",
            field=models.CharField(
                choices=[
                    ("next-invoice", "On the next invoice"),
                    (
                        "credit-note",
                        "What was too much on a credit note, what was missing on the next invoice",
                    ),
                    (
                        "own-invoice",
                        "What was too much on a credit note, what was missing on an invoice of its own",
                    ),
                ],
                default="next-invoice",
                help_text="Where usage goes that becomes known, or changes, after its invoice; a tenant may differ.",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="sellerevent",
            name="credit_prefix",
            field=models.CharField(
                default="CN", help_text="What the numbers of credit notes begin with.", max_length=12
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
                ],
                default="usage",
                max_length=12,
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="issued_invoice_is_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP = 'DELETE' THEN\n    IF OLD.state IN ('issued', 'void') THEN\n        RAISE EXCEPTION 'Invoice % is issued and cannot be deleted: correct it with a credit note.', OLD.number;\n    END IF;\n    RETURN OLD;\nEND IF;\nIF OLD.state IN ('issued', 'void')\n   AND (to_jsonb(NEW) - 'state') IS DISTINCT FROM (to_jsonb(OLD) - 'state') THEN\n    RAISE EXCEPTION 'Invoice % is issued and cannot be changed: correct it with a credit note.', OLD.number;\nEND IF;\nIF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (\n    ('draft', 'parked'), ('draft', 'issued'), ('parked', 'draft'), ('parked', 'issued'), ('issued', 'void')) THEN\n    RAISE EXCEPTION 'An invoice cannot go from % to %.', OLD.state, NEW.state;\nEND IF;\nIF NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.subtotal <> (\n    SELECT coalesce(sum(amount), 0) FROM billing_invoiceline WHERE invoice_id = NEW.id) THEN\n    RAISE EXCEPTION 'The lines of invoice % do not add up to its subtotal.', NEW.number;\nEND IF;\nIF NEW.state = 'issued' AND OLD.state <> 'issued' AND (NEW.subtotal, NEW.tax) <> (\n    SELECT coalesce(sum(net), 0), coalesce(sum(tax), 0) FROM billing_invoicetax WHERE invoice_id = NEW.id) THEN\n    RAISE EXCEPTION 'The taxes of invoice % do not add up to its subtotal and tax.', NEW.number;\nEND IF;\nIF NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.original_id IS NOT NULL THEN\n    PERFORM FROM billing_invoice WHERE id = NEW.original_id FOR NO KEY UPDATE;\n    IF NOT EXISTS (SELECT FROM billing_invoice WHERE id = NEW.original_id AND tenant_id = NEW.tenant_id\n                   AND currency = NEW.currency AND state = 'issued' AND kind <> 'credit-note') THEN\n        RAISE EXCEPTION 'Credit note % does not go with its invoice.', NEW.number;\n    END IF;\n    IF EXISTS (SELECT FROM billing_invoiceline l LEFT JOIN billing_invoiceline o ON o.id = l.original_id\n               WHERE l.invoice_id = NEW.id AND o.invoice_id IS DISTINCT FROM NEW.original_id) THEN\n        RAISE EXCEPTION 'Credit note % has a line that its invoice does not have.', NEW.number;\n    END IF;\n    IF 0 > (SELECT o.total + NEW.total + coalesce((SELECT sum(c.total) FROM billing_invoice c\n                WHERE c.original_id = o.id AND c.state = 'issued' AND c.id <> NEW.id), 0)\n            FROM billing_invoice o WHERE o.id = NEW.original_id)\n       OR EXISTS (SELECT FROM billing_invoiceline o\n                  JOIN billing_invoiceline c ON c.original_id = o.id\n                  JOIN billing_invoice i ON i.id = c.invoice_id AND (i.state = 'issued' OR i.id = NEW.id)\n                  WHERE o.invoice_id = NEW.original_id\n                  GROUP BY o.id HAVING (o.amount + sum(c.amount)) * sign(o.amount) < 0) THEN\n        RAISE EXCEPTION 'Credit note % exceeds what is left of its invoice.', NEW.number;\n    END IF;\nEND IF;\nRETURN NEW;\n",
                    hash="c217320383c753d1e5a0b041dd10923d7a533977",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_issued_invoice_is_frozen_7e07f",
                    table="billing_invoice",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="invoice",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_invoiceevent" ("buyer", "currency", "due_on", "id", "issued_on", "kind", "number", "original_id", "period_end", "period_id", "period_start", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "rated_through", "reason", "replaces_id", "seller", "state", "subtotal", "tax", "tax_name", "tax_rate", "tenant_id", "terms", "timezone", "total") VALUES (NEW."buyer", NEW."currency", NEW."due_on", NEW."id", NEW."issued_on", NEW."kind", NEW."number", NEW."original_id", NEW."period_end", NEW."period_id", NEW."period_start", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."rated_through", NEW."reason", NEW."replaces_id", NEW."seller", NEW."state", NEW."subtotal", NEW."tax", NEW."tax_name", NEW."tax_rate", NEW."tenant_id", NEW."terms", NEW."timezone", NEW."total"); RETURN NULL;',
                    hash="44fe783041ca00b90e4b7726516fcb18264006a7",
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
                    func='INSERT INTO "billing_invoiceevent" ("buyer", "currency", "due_on", "id", "issued_on", "kind", "number", "original_id", "period_end", "period_id", "period_start", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "rated_through", "reason", "replaces_id", "seller", "state", "subtotal", "tax", "tax_name", "tax_rate", "tenant_id", "terms", "timezone", "total") VALUES (NEW."buyer", NEW."currency", NEW."due_on", NEW."id", NEW."issued_on", NEW."kind", NEW."number", NEW."original_id", NEW."period_end", NEW."period_id", NEW."period_start", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."rated_through", NEW."reason", NEW."replaces_id", NEW."seller", NEW."state", NEW."subtotal", NEW."tax", NEW."tax_name", NEW."tax_rate", NEW."tenant_id", NEW."terms", NEW."timezone", NEW."total"); RETURN NULL;',
                    hash="a54b3a0279a885f1c8caeb3a3182f54d5f20807f",
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
                    func='INSERT INTO "billing_invoiceevent" ("buyer", "currency", "due_on", "id", "issued_on", "kind", "number", "original_id", "period_end", "period_id", "period_start", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "rated_through", "reason", "replaces_id", "seller", "state", "subtotal", "tax", "tax_name", "tax_rate", "tenant_id", "terms", "timezone", "total") VALUES (OLD."buyer", OLD."currency", OLD."due_on", OLD."id", OLD."issued_on", OLD."kind", OLD."number", OLD."original_id", OLD."period_end", OLD."period_id", OLD."period_start", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."rated_through", OLD."reason", OLD."replaces_id", OLD."seller", OLD."state", OLD."subtotal", OLD."tax", OLD."tax_name", OLD."tax_rate", OLD."tenant_id", OLD."terms", OLD."timezone", OLD."total"); RETURN NULL;',
                    hash="66be589821a486887ab2f58dfc4de4edeb4dac9d",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_6493d",
                    table="billing_invoice",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="seller",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id") VALUES (NEW."address", NEW."bic", NEW."code", NEW."corrections", NEW."credit_prefix", NEW."email", NEW."iban", NEW."id", NEW."invoice_prefix", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."registration", NEW."tax_name", NEW."vat_id"); RETURN NULL;',
                    hash="913d6e0257ad2a936b73806d7c743d29f786fe54",
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
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id") VALUES (NEW."address", NEW."bic", NEW."code", NEW."corrections", NEW."credit_prefix", NEW."email", NEW."iban", NEW."id", NEW."invoice_prefix", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."registration", NEW."tax_name", NEW."vat_id"); RETURN NULL;',
                    hash="88f0edab05d835c95914e00d491971f006569159",
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
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id") VALUES (OLD."address", OLD."bic", OLD."code", OLD."corrections", OLD."credit_prefix", OLD."email", OLD."iban", OLD."id", OLD."invoice_prefix", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."registration", OLD."tax_name", OLD."vat_id"); RETURN NULL;',
                    hash="7a110eb19a7897651ee6dd8d9ce6353343b74635",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_241c7",
                    table="billing_seller",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                condition=models.Q(models.Q(("state", "void"), _negated=True), ("kind", "invoice")),
                fields=("tenant", "period"),
                name="one_invoice_per_tenant_and_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind__in", ["invoice", "correction"]), ("original__isnull", True)),
                    models.Q(
                        ("kind", "credit-note"),
                        ("original__isnull", False),
                        ("replaces__isnull", True),
                        ("total__lte", 0),
                    ),
                    _connector="OR",
                ),
                name="credit_note_takes_back_from_an_invoice",
            ),
        ),
        migrations.AddConstraint(
            model_name="seller",
            constraint=models.CheckConstraint(
                condition=models.Q(("credit_prefix", models.F("invoice_prefix")), _negated=True),
                name="seller_numbers_credit_notes_apart",
            ),
        ),
        migrations.AddConstraint(
            model_name="seller",
            constraint=models.CheckConstraint(
                condition=models.Q(("corrections__in", ["next-invoice", "credit-note", "own-invoice"])),
                name="seller_corrections_are_known",
            ),
        ),
        migrations.AddField(
            model_name="invoicetax",
            name="invoice",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="taxes", to="billing.invoice"
            ),
        ),
        migrations.AddField(
            model_name="invoicetax",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="voiding",
            name="invoice",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, related_name="voiding", to="billing.invoice"
            ),
        ),
        migrations.AddField(
            model_name="voiding",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="voidingevent",
            name="invoice",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="billing.invoice",
            ),
        ),
        migrations.AddField(
            model_name="voidingevent",
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
            model_name="voidingevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.voiding",
            ),
        ),
        migrations.AddField(
            model_name="voidingevent",
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
            model_name="invoicetax",
            constraint=models.UniqueConstraint(
                fields=("invoice", "category", "rate"), name="tax_stands_once_on_its_invoice"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoicetax",
            constraint=models.CheckConstraint(
                condition=models.Q(("rate__range", (0, 100))), name="invoice_tax_is_a_percentage"
            ),
        ),
        migrations.RunSQL(BACKFILL, migrations.RunSQL.noop),
        pgtrigger.migrations.AddTrigger(
            model_name="invoicetax",
            trigger=pgtrigger.compiler.Trigger(
                name="issued_tax_is_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP <> 'INSERT' AND (SELECT state FROM billing_invoice WHERE id = OLD.invoice_id) IN ('issued', 'void') THEN\n    RAISE EXCEPTION 'The taxes of an issued invoice cannot be changed: correct it with a credit note.';\nEND IF;\nIF TG_OP <> 'DELETE' AND (SELECT state FROM billing_invoice WHERE id = NEW.invoice_id) IN ('issued', 'void') THEN\n    RAISE EXCEPTION 'An issued invoice takes no more taxes: correct it with a credit note.';\nEND IF;\nRETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;\n",
                    hash="f1c98a0a3d3abe76fdf7be0e9b30239a73b840e8",
                    operation="INSERT OR UPDATE OR DELETE",
                    pgid="pgtrigger_issued_tax_is_frozen_b4c25",
                    table="billing_invoicetax",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="voiding",
            trigger=pgtrigger.compiler.Trigger(
                name="voiding_is_final",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF TG_OP <> 'INSERT' THEN\n    RAISE EXCEPTION 'An invoice stays void, and why: close its period again.';\nEND IF;\nIF EXISTS (SELECT FROM billing_payment WHERE invoice_id = NEW.invoice_id HAVING sum(amount) <> 0)\n   OR EXISTS (SELECT FROM billing_invoice WHERE original_id = NEW.invoice_id AND state = 'issued') THEN\n    RAISE EXCEPTION 'An invoice that was paid or credited cannot be void: credit the rest of it.';\nEND IF;\nRETURN NEW;\n",
                    hash="aa8f381f77ab78a8ef9bf63e626d7d8e4e19f4e9",
                    operation="INSERT OR UPDATE OR DELETE",
                    pgid="pgtrigger_voiding_is_final_fabbc",
                    table="billing_voiding",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="voiding",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_voidingevent" ("by", "id", "invoice_id", "on", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "tenant_id") VALUES (NEW."by", NEW."id", NEW."invoice_id", NEW."on", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."tenant_id"); RETURN NULL;',
                    hash="c02e5191e536d3d4970174b022df0b23ed09fd66",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_a9901",
                    table="billing_voiding",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="voiding",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_voidingevent" ("by", "id", "invoice_id", "on", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "tenant_id") VALUES (NEW."by", NEW."id", NEW."invoice_id", NEW."on", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."tenant_id"); RETURN NULL;',
                    hash="0e350a227045f51bf76e0e0c1a58c0e977256bc6",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_f1170",
                    table="billing_voiding",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="voiding",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_voidingevent" ("by", "id", "invoice_id", "on", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "tenant_id") VALUES (OLD."by", OLD."id", OLD."invoice_id", OLD."on", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."tenant_id"); RETURN NULL;',
                    hash="6b6e8b156dc1f0a7b33b742223ecdbc5a581ee36",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_b580d",
                    table="billing_voiding",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="voidingevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="9827fd02109b61235893f6a7c75b151cb8822db0",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_d5aa7",
                    table="billing_voidingevent",
                    when="BEFORE",
                ),
            ),
        ),
        *[migrations.RunSQL(*_protect(table)) for table in ("billing_invoicetax", "billing_voiding")],
    ]
