"""GPU memory and Slurm's billing weight can be charged."""

import django.contrib.postgres.fields
from django.db import migrations, models

RESOURCES = [
    ("gpu", "GPU"),
    ("cpu", "CPU"),
    ("memory", "Memory"),
    ("gpu-memory", "GPU memory"),
    ("billing", "Slurm billing"),
]


def _resource(model: str, help_text: str = "") -> migrations.AlterField:
    return migrations.AlterField(
        model_name=model,
        name="resource",
        field=models.CharField(choices=RESOURCES, max_length=10, help_text=help_text),
    )


def _charges(model: str) -> migrations.AlterField:
    return migrations.AlterField(
        model_name=model,
        name="charges",
        field=django.contrib.postgres.fields.ArrayField(
            base_field=models.CharField(choices=RESOURCES, max_length=10),
            help_text="Resources that are charged; the others are waived: 'not charged by this plan'.",
            size=None,
        ),
    )


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0012_lines_of_terms"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="price", name="price_resource_is_known"),
        migrations.AddField(
            model_name="ratedjob", name="gpu_memory_mib", field=models.BigIntegerField(db_default=0)
        ),
        migrations.AddField(
            model_name="ratedjob", name="billing", field=models.BigIntegerField(db_default=0)
        ),
        _resource("daytotal"),
        _resource("periodtotal"),
        _resource("usertotal"),
        _resource("price", help_text="What the meter counts."),
        _resource("priceevent", help_text="What the meter counts."),
        _charges("planversion"),
        _charges("planversionevent"),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(("resource__in", [name for name, _ in RESOURCES])),
                name="price_resource_is_known",
            ),
        ),
    ]
