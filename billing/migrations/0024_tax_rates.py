"""Rates of tax by country with their dates, why a document has none, and where its seller is."""

import django.core.validators
import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0023_parked_invoices"),
        ("pghistory", "0007_auto_20250421_0444"),
    ]

    operations = [
        migrations.CreateModel(
            name="TaxRate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "country",
                    models.CharField(
                        help_text="ISO 3166-1, two letters: DE, US.",
                        max_length=2,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{2}$", "write the two letters of ISO 3166-1, such as DE or US."
                            )
                        ],
                    ),
                ),
                (
                    "region",
                    models.CharField(
                        blank=True,
                        help_text="Empty: of the whole country. CA for California.",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "category",
                    models.SlugField(default="standard", help_text="As tenants name it.", max_length=30),
                ),
                (
                    "rate",
                    models.DecimalField(
                        decimal_places=3,
                        help_text="Per cent.",
                        max_digits=6,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "since",
                    models.DateField(
                        help_text="The first day on which a service that ends then is taxed so."
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TaxRateEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                (
                    "country",
                    models.CharField(
                        help_text="ISO 3166-1, two letters: DE, US.",
                        max_length=2,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{2}$", "write the two letters of ISO 3166-1, such as DE or US."
                            )
                        ],
                    ),
                ),
                (
                    "region",
                    models.CharField(
                        blank=True,
                        help_text="Empty: of the whole country. CA for California.",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                (
                    "category",
                    models.SlugField(
                        db_index=False, default="standard", help_text="As tenants name it.", max_length=30
                    ),
                ),
                (
                    "rate",
                    models.DecimalField(
                        decimal_places=3,
                        help_text="Per cent.",
                        max_digits=6,
                        validators=[django.core.validators.MinValueValidator(0)],
                    ),
                ),
                (
                    "since",
                    models.DateField(
                        help_text="The first day on which a service that ends then is taxed so."
                    ),
                ),
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
            model_name="invoicetax",
            name="reason",
            field=models.CharField(
                blank=True,
                help_text="Why no tax is charged, as it has to stand on the invoice.",
                max_length=300,
            ),
        ),
        migrations.AddField(
            model_name="seller",
            name="country",
            field=models.CharField(
                blank=True,
                help_text="ISO 3166-1, two letters: DE, US.",
                max_length=2,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[A-Z]{2}$", "write the two letters of ISO 3166-1, such as DE or US."
                    )
                ],
            ),
        ),
        migrations.AddField(
            model_name="sellerevent",
            name="country",
            field=models.CharField(
                blank=True,
                help_text="ISO 3166-1, two letters: DE, US.",
                max_length=2,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[A-Z]{2}$", "write the two letters of ISO 3166-1, such as DE or US."
                    )
                ],
            ),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="tax_category",
            field=models.CharField(
                choices=[
                    ("S", "Taxed"),
                    ("Z", "Zero-rated"),
                    ("E", "Exempt"),
                    ("AE", "Reverse charge"),
                    ("G", "Supplied to outside the EU"),
                    ("O", "Outside the scope of tax"),
                ],
                default="S",
                max_length=2,
            ),
        ),
        migrations.AlterField(
            model_name="invoicetax",
            name="category",
            field=models.CharField(
                choices=[
                    ("S", "Taxed"),
                    ("Z", "Zero-rated"),
                    ("E", "Exempt"),
                    ("AE", "Reverse charge"),
                    ("G", "Supplied to outside the EU"),
                    ("O", "Outside the scope of tax"),
                ],
                max_length=2,
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="seller",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "country", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."bic", NEW."code", NEW."corrections", NEW."country", NEW."credit_prefix", NEW."email", NEW."iban", NEW."id", NEW."invoice_prefix", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."registration", NEW."tax_name", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="14da8edfad64f2b5547ba75605b36ef0fe919a1e",
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
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "country", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."bic", NEW."code", NEW."corrections", NEW."country", NEW."credit_prefix", NEW."email", NEW."iban", NEW."id", NEW."invoice_prefix", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."registration", NEW."tax_name", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="d8544239f2a8489106b80256e00889abb09cbc4d",
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
                    func='INSERT INTO "billing_sellerevent" ("address", "bic", "code", "corrections", "country", "credit_prefix", "email", "iban", "id", "invoice_prefix", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "registration", "tax_name", "vat_id", "zero_invoices") VALUES (OLD."address", OLD."bic", OLD."code", OLD."corrections", OLD."country", OLD."credit_prefix", OLD."email", OLD."iban", OLD."id", OLD."invoice_prefix", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."registration", OLD."tax_name", OLD."vat_id", OLD."zero_invoices"); RETURN NULL;',
                    hash="1db1aceccda30b12319cdb3fd8fb3170b5160ee1",
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
                condition=models.Q(("country", ""), ("country__regex", "^[A-Z]{2}$"), _connector="OR"),
                name="seller_country_is_two_letters",
            ),
        ),
        migrations.AddConstraint(
            model_name="taxrate",
            constraint=models.UniqueConstraint(
                fields=("country", "region", "category", "since"), name="one_tax_rate_begins_on_a_day"
            ),
        ),
        migrations.AddConstraint(
            model_name="taxrate",
            constraint=models.CheckConstraint(
                condition=models.Q(("rate__range", (0, 100))), name="tax_rate_is_a_percentage"
            ),
        ),
        migrations.AddConstraint(
            model_name="taxrate",
            constraint=models.CheckConstraint(
                condition=models.Q(("country__regex", "^[A-Z]{2}$")), name="tax_rate_country_is_two_letters"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="taxrate",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_taxrateevent" ("category", "country", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "rate", "region", "since") VALUES (NEW."category", NEW."country", NEW."id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."rate", NEW."region", NEW."since"); RETURN NULL;',
                    hash="f963fc2c051ce8a810ecbd145d95ca3af96bdd2b",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_20e2b",
                    table="billing_taxrate",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="taxrate",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_taxrateevent" ("category", "country", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "rate", "region", "since") VALUES (NEW."category", NEW."country", NEW."id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."rate", NEW."region", NEW."since"); RETURN NULL;',
                    hash="3f944f32aa0f8487bbc0c25388a57ef4652184fc",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_9c22b",
                    table="billing_taxrate",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="taxrate",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_taxrateevent" ("category", "country", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "rate", "region", "since") VALUES (OLD."category", OLD."country", OLD."id", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."rate", OLD."region", OLD."since"); RETURN NULL;',
                    hash="c89d9c59d4447e48dac28d14492ce47e4c186245",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_4d032",
                    table="billing_taxrate",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddField(
            model_name="taxrateevent",
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
            model_name="taxrateevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.taxrate",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="taxrateevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="a35254cb88678f3003bf088762db2264551d29b9",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_d95ee",
                    table="billing_taxrateevent",
                    when="BEFORE",
                ),
            ),
        ),
    ]
