"""Jobs that ended lately, whoever's they are: what monitoring asks for each minute."""

import django.contrib.postgres.indexes
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0016_price_models"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="ratedjob",
            index=django.contrib.postgres.indexes.BrinIndex(
                fields=["ended"], name="jobs_by_end", pages_per_range=32
            ),
        ),
    ]
