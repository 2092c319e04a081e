import django.db.models.functions.datetime
import portal.schema.operations
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        portal.schema.operations.CreateModels(
            tables=[
                migrations.CreateModel(
                    name='OutboxMessage',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('task', models.TextField(help_text='Importable name of the function.')),
                        ('kwargs', models.JSONField(default=dict, help_text='Its arguments: plain values and ids.')),
                        ('traceparent', models.TextField(blank=True, help_text='The span that caused it, where tracing is on.')),
                        ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                        ('available_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='Nobody takes it before: set ahead when it is sent and when it fails.')),
                        ('attempts', models.PositiveIntegerField(default=0, help_text='How often it ended, well or not.')),
                        ('last_error', models.TextField(blank=True)),
                        ('done_at', models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        'indexes': [models.Index(models.F('available_at'), models.F('id'), condition=models.Q(('done_at', None)), name='outbox_undone')],
                        'constraints': [],
                    },
                ),
            ],
        ),
    ]
