from django.db import migrations

from portal.schema.upgrade import Beside


class Migration(migrations.Migration):
    dependencies = (("billing", "0003_efficiency_of_clusters"),)
    operations = (Beside("job_measures.sql"),)
