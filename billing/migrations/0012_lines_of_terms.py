"""A line may state a term of the plan rather than use: it has no project, meter or price of its own then."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0011_jobs_without_checks_of_their_own"),
    ]

    operations = [
        migrations.AddField(
            model_name="invoiceline",
            name="kind",
            field=models.CharField(
                choices=[
                    ("usage", "Use of a meter at a price"),
                    ("fee", "Flat fee"),
                    ("commitment", "Minimum commitment"),
                    ("discount", "Discount"),
                ],
                default="usage",
                max_length=12,
            ),
        ),
        migrations.AddField(
            model_name="invoiceline",
            name="term_id",
            field=models.BigIntegerField(
                help_text="The term that it states: the row of its kind.", null=True
            ),
        ),
        migrations.AddField(
            model_name="invoiceline",
            name="terms",
            field=models.JSONField(default=dict, help_text="Frozen: by what it can be computed again."),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="meter",
            field=models.CharField(blank=True, max_length=20),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="price_id",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="project",
            field=models.CharField(
                blank=True, help_text="Frozen name; empty: of the whole tenant.", max_length=200
            ),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="project_id",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="unit",
            field=models.CharField(blank=True, max_length=20),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="unit_price",
            field=models.DecimalField(
                decimal_places=12,
                help_text="Empty where `terms` say how it is priced.",
                max_digits=24,
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="invoiceline",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "usage"), _negated=True),
                    models.Q(
                        ("price_id__isnull", False),
                        ("project_id__isnull", False),
                        ("term_id__isnull", True),
                        models.Q(("meter", ""), _negated=True),
                    ),
                    _connector="OR",
                ),
                name="line_of_usage_has_project_and_price",
            ),
        ),
    ]
