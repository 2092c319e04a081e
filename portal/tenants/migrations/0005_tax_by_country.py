"""Where a tenant is, and how its tax is found."""

import django.core.validators
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0004_zero_invoices"),
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
            model_name="tenant",
            name="region",
            field=models.CharField(
                blank=True,
                help_text="Where the tax depends on it: CA for California.",
                max_length=10,
                verbose_name="state",
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="tax_category",
            field=models.SlugField(
                default="standard", help_text="Of the rates that its country has.", max_length=30
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="tax_reason",
            field=models.CharField(
                blank=True,
                help_text="Stands on invoices: why no tax is charged, with the law.",
                max_length=300,
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="tax_treatment",
            field=models.CharField(
                blank=True,
                choices=[
                    ("", "At the tax rate given here"),
                    ("by-country", "By the countries of seller and tenant, and their VAT ids"),
                    ("reverse-charge", "Reverse charge"),
                    ("exempt", "Exempt, for the reason given here"),
                    ("outside", "Outside the scope of tax"),
                ],
                max_length=14,
            ),
        ),
        migrations.AddField(
            model_name="tenantevent",
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
            model_name="tenantevent",
            name="region",
            field=models.CharField(
                blank=True,
                help_text="Where the tax depends on it: CA for California.",
                max_length=10,
                verbose_name="state",
            ),
        ),
        migrations.AddField(
            model_name="tenantevent",
            name="tax_category",
            field=models.SlugField(
                db_index=False,
                default="standard",
                help_text="Of the rates that its country has.",
                max_length=30,
            ),
        ),
        migrations.AddField(
            model_name="tenantevent",
            name="tax_reason",
            field=models.CharField(
                blank=True,
                help_text="Stands on invoices: why no tax is charged, with the law.",
                max_length=300,
            ),
        ),
        migrations.AddField(
            model_name="tenantevent",
            name="tax_treatment",
            field=models.CharField(
                blank=True,
                choices=[
                    ("", "At the tax rate given here"),
                    ("by-country", "By the countries of seller and tenant, and their VAT ids"),
                    ("reverse-charge", "Reverse charge"),
                    ("exempt", "Exempt, for the reason given here"),
                    ("outside", "Outside the scope of tax"),
                ],
                max_length=14,
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="tenant",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "tenants_tenantevent" ("address", "anchor_day", "corrections", "country", "email", "id", "name", "payment_terms_days", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "purchase_order", "region", "slug", "tax_category", "tax_rate", "tax_reason", "tax_treatment", "timezone", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."anchor_day", NEW."corrections", NEW."country", NEW."email", NEW."id", NEW."name", NEW."payment_terms_days", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."purchase_order", NEW."region", NEW."slug", NEW."tax_category", NEW."tax_rate", NEW."tax_reason", NEW."tax_treatment", NEW."timezone", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="1f0255496732691b88d22de5f726b65d5bcfb703",
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
                    func='INSERT INTO "tenants_tenantevent" ("address", "anchor_day", "corrections", "country", "email", "id", "name", "payment_terms_days", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "purchase_order", "region", "slug", "tax_category", "tax_rate", "tax_reason", "tax_treatment", "timezone", "vat_id", "zero_invoices") VALUES (NEW."address", NEW."anchor_day", NEW."corrections", NEW."country", NEW."email", NEW."id", NEW."name", NEW."payment_terms_days", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."purchase_order", NEW."region", NEW."slug", NEW."tax_category", NEW."tax_rate", NEW."tax_reason", NEW."tax_treatment", NEW."timezone", NEW."vat_id", NEW."zero_invoices"); RETURN NULL;',
                    hash="a9561a25647efa8133347659a3017c3a9549ef05",
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
                    func='INSERT INTO "tenants_tenantevent" ("address", "anchor_day", "corrections", "country", "email", "id", "name", "payment_terms_days", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "purchase_order", "region", "slug", "tax_category", "tax_rate", "tax_reason", "tax_treatment", "timezone", "vat_id", "zero_invoices") VALUES (OLD."address", OLD."anchor_day", OLD."corrections", OLD."country", OLD."email", OLD."id", OLD."name", OLD."payment_terms_days", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."purchase_order", OLD."region", OLD."slug", OLD."tax_category", OLD."tax_rate", OLD."tax_reason", OLD."tax_treatment", OLD."timezone", OLD."vat_id", OLD."zero_invoices"); RETURN NULL;',
                    hash="2ac85cd27c76046d4af688b77fd2e440a1164174",
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
                condition=models.Q(("country", ""), ("country__regex", "^[A-Z]{2}$"), _connector="OR"),
                name="tenant_country_is_two_letters",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("tax_treatment__in", ["", "by-country", "reverse-charge", "exempt", "outside"])
                ),
                name="tenant_tax_treatment_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("tax_treatment", "exempt"), _negated=True),
                    models.Q(("tax_reason", ""), _negated=True),
                    _connector="OR",
                ),
                name="tenant_exemption_says_why",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("tax_treatment", "reverse-charge"), _negated=True),
                    models.Q(
                        models.Q(("country", ""), _negated=True), models.Q(("vat_id", ""), _negated=True)
                    ),
                    _connector="OR",
                ),
                name="tenant_of_reverse_charge_has_country_and_vat_id",
            ),
        ),
    ]
