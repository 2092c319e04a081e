from django.db import migrations

from portal.schema.upgrade import IndexPartitions


class Migration(migrations.Migration):
    atomic = False
    dependencies = (("billing", "0005_focus_exports"),)
    operations = (IndexPartitions("billing_ratedusage", "usage_of_period", ("tenant_id", "period_id")),)
