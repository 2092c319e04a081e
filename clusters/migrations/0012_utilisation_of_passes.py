"""Passes count the hours of utilisation that they read, and no run is busier than it was covered."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0011_weights")]

    operations = [
        migrations.AddField(
            model_name="pull",
            name="busy_read",
            field=models.BigIntegerField(default=0, help_text="Hours of runs that telemetry told of."),
        ),
        migrations.AddField(
            model_name="pull",
            name="busy_changed",
            field=models.BigIntegerField(default=0, help_text="Those that were new or said something else."),
        ),
        migrations.AddConstraint(
            model_name="utilisationhour",
            constraint=models.CheckConstraint(
                condition=models.Q(("busy__lte", models.F("covered"))),
                name="utilisation_is_of_what_was_covered",
            ),
        ),
    ]
