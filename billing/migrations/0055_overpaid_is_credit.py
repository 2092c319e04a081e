"""Money that was paid too much by hand is told apart in credit balances."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0054_asked_and_read_by_month"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="creditentry",
            name="credit_kind_is_known",
        ),
        migrations.RemoveConstraint(
            model_name="creditentry",
            name="credit_that_pays_names_its_payment",
        ),
        migrations.AlterField(
            model_name="creditentry",
            name="kind",
            field=models.CharField(
                choices=[
                    ("received", "Paid more than was due"),
                    ("overpaid", "Paid too much of an invoice"),
                    ("used", "Paid an invoice"),
                    ("unused", "Taken from an invoice again"),
                    ("paid-back", "Paid back"),
                    ("taken", "Its transfer went back"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="creditentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("kind__in", ["received", "overpaid", "used", "unused", "paid-back", "taken"])
                ),
                name="credit_kind_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="creditentry",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind__in", ["overpaid", "used", "unused"]), ("payment__isnull", False)),
                    models.Q(
                        models.Q(("kind__in", ["overpaid", "used", "unused"]), _negated=True),
                        ("payment__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="credit_that_pays_names_its_payment",
            ),
        ),
    ]
