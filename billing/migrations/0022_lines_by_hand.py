"""Whether a line by hand was billed is found by its index."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0021_prices_of_one_tenant"),
        ("tenants", "0004_zero_invoices"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="invoiceline",
            index=models.Index(
                condition=models.Q(("kind", "manual")), fields=["term_id"], name="lines_by_hand"
            ),
        ),
    ]
