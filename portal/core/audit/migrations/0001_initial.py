import django.contrib.postgres.indexes
import portal.core.audit.models
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
                    name='AuditEntry',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('transaction', models.BigIntegerField(help_text="Drawn with its first change; its number in the order of commits is its commit's.")),
                        ('at', models.DateTimeField(help_text='When the transaction began.')),
                        ('table', models.TextField()),
                        ('key', models.TextField(help_text="The row's primary key.")),
                        ('operation', models.CharField(choices=[('insert', 'new'), ('update', 'changed'), ('delete', 'gone')], max_length=6)),
                        ('before', models.JSONField(decoder=portal.core.audit.models.Exact, help_text='Columns that changed, or all of a row that is gone.', null=True)),
                        ('after', models.JSONField(decoder=portal.core.audit.models.Exact, help_text='Columns that changed, or all of a new row.', null=True)),
                        ('tenant_id', models.BigIntegerField(help_text='Whose row it is; not checked, since tenants may go.', null=True)),
                        ('who', models.TextField(blank=True, help_text='Empty: nobody was named.')),
                        ('through', models.TextField(blank=True, help_text='The page, command, file, API key or task.')),
                        ('why', models.TextField(blank=True)),
                    ],
                    options={
                        'verbose_name': 'change',
                        'verbose_name_plural': 'changes',
                        'db_table': 'audit_entry',
                        'indexes': [models.Index(fields=['table', 'key'], name='audit_entry_of_row'), models.Index(condition=models.Q(('tenant_id__isnull', False)), fields=['tenant_id', 'id'], name='audit_entry_of_tenant'), models.Index(fields=['who', 'id'], name='audit_entry_of_author'), django.contrib.postgres.indexes.BrinIndex(autosummarize=True, fields=['transaction'], name='audit_entry_of_transaction')],
                        'constraints': [],
                    },
                ),
                migrations.CreateModel(
                    name='AuditCommit',
                    fields=[
                        ('transaction', models.BigIntegerField(primary_key=True, serialize=False)),
                        ('number', models.BigIntegerField(null=True, unique=True)),
                    ],
                    options={
                        'db_table': 'audit_commit',
                        'indexes': [],
                        'constraints': [],
                    },
                ),
            ],
        ),
    ]
