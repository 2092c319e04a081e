"""A bank that only asks about a payment has taken nothing: its inquiry is told apart from a dispute."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0059_archived_owns_no_account"),
        ("tenants", "0005_tax_by_country"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="paymentdispute",
            name="dispute_state_is_known",
        ),
        migrations.AlterField(
            model_name="paymentdispute",
            name="state",
            field=models.CharField(
                choices=[
                    ("inquiry", "Asked about"),
                    ("open", "Disputed"),
                    ("won", "Won"),
                    ("lost", "Charged back"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="paymentdisputeevent",
            name="state",
            field=models.CharField(
                choices=[
                    ("inquiry", "Asked about"),
                    ("open", "Disputed"),
                    ("won", "Won"),
                    ("lost", "Charged back"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentdispute",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["inquiry", "open", "won", "lost"])),
                name="dispute_state_is_known",
            ),
        ),
    ]
