from django.db import migrations

from portal.schema.upgrade import Beside


class Migration(migrations.Migration):
    dependencies = (("clusters", "0001_initial"),)
    operations = (Beside("month_of_key.sql"),)
