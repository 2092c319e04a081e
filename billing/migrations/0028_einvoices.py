"""The e-invoice of a document beside its PDF, or why there is none."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0027_operating_costs"),
    ]

    operations = [
        migrations.AddField(
            model_name="invoicedocument",
            name="einvoice",
            field=models.BinaryField(help_text="The XML that the PDF carries.", null=True),
        ),
        migrations.AddField(
            model_name="invoicedocument",
            name="no_einvoice",
            field=models.TextField(blank=True, help_text="Why there is none."),
        ),
    ]
