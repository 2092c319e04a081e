"""What a run's devices have of memory, and Slurm's billing weight; of what was recorded before neither is known."""

from django.db import migrations, models

REVISIONS = """
ALTER TABLE clusters_usagerevision ADD COLUMN gpu_memory_mib bigint NOT NULL DEFAULT 0,
    ADD COLUMN billing bigint NOT NULL DEFAULT 0;
"""
UNDO = "ALTER TABLE clusters_usagerevision DROP COLUMN gpu_memory_mib, DROP COLUMN billing"


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0010_utilisation"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="gpu_memory_mib",
            field=models.BigIntegerField(db_default=0, help_text="Memory of the devices that it held."),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="billing",
            field=models.BigIntegerField(db_default=0, help_text="Slurm's billing TRES, a weight."),
        ),
        migrations.AddConstraint(
            model_name="usagerecord",
            constraint=models.CheckConstraint(
                condition=models.Q(("billing__gte", 0), ("gpu_memory_mib__gte", 0)),
                name="usage_weighs_never_less_than_nothing",
            ),
        ),
        migrations.RunSQL(REVISIONS, UNDO),
    ]
