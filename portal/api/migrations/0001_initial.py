import django.contrib.postgres.fields
import django.db.models.deletion
import portal.schema.operations
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('clusters', '0001_initial'),
        ('tenants', '0001_initial'),
    ]

    operations = [
        portal.schema.operations.CreateModels(
            tables=[
                migrations.CreateModel(
                    name='ApiKey',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='api_keys', to='tenants.tenant')),
                        ('project', models.ForeignKey(help_text='Empty: all projects.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.project')),
                        ('cluster', models.ForeignKey(help_text="Of an operator's key that asks and reserves for jobs of this cluster, and does nothing else.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='clusters.cluster')),
                        ('name', models.CharField(help_text='What it is used for.', max_length=100)),
                        ('maker', models.ForeignKey(help_text='Its role limits what the key may do.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('is_service', models.BooleanField(default=False, help_text='It stays valid when its maker leaves the tenant. Only owners make one.')),
                        ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), help_text='What it may do.', size=None)),
                        ('prefix', models.CharField(help_text='The part that is shown after its creation.', max_length=8, unique=True)),
                        ('digest', models.BinaryField(help_text='SHA-256 of the whole key.', max_length=32)),
                        ('previous_digest', models.BinaryField(help_text='Of the key before the last rotation.', max_length=32, null=True)),
                        ('previous_until', models.DateTimeField(help_text='Until then the previous secret is valid.', null=True)),
                        ('created_at', models.DateTimeField()),
                        ('expires_at', models.DateTimeField(help_text='Empty: never.', null=True)),
                        ('revoked_at', models.DateTimeField(null=True)),
                        ('announced_at', models.DateTimeField(help_text='When the owners were mailed of it.', null=True)),
                        ('used_at', models.DateTimeField(help_text='Last use, to the hour.', null=True)),
                        ('used_from', models.GenericIPAddressField(help_text='Address of the last use.', null=True)),
                        ('previous_used_at', models.DateTimeField(help_text='Last use of the previous secret, to the hour.', null=True)),
                    ],
                    options={
                        'verbose_name': 'API key',
                        'indexes': [models.Index(models.F('tenant'), models.F('id'), name='api_keys_of_tenant')],
                        'constraints': [models.CheckConstraint(condition=models.Q(('scopes', []), _negated=True), name='api_key_has_a_scope'), models.CheckConstraint(condition=models.Q(('project__isnull', True), ('tenant__isnull', False), _connector='OR'), name='api_key_of_a_project_has_a_tenant'), models.CheckConstraint(condition=models.Q(models.Q(('cluster__isnull', True), models.Q(('scopes__overlap', ['jobs:check', 'jobs:reserve']), _negated=True)), models.Q(('cluster__isnull', False), ('scopes__contained_by', ['jobs:check', 'jobs:reserve']), ('tenant__isnull', True)), _connector='OR'), name='api_key_of_a_cluster_only_asks')],
                    },
                ),
                migrations.CreateModel(
                    name='IdempotentRequest',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('owner', models.CharField(help_text='`tenant:ID`, `cluster:ID` or `operator`: whose key the request came with.', max_length=40)),
                        ('key', models.CharField(max_length=255)),
                        ('digest', models.BinaryField(help_text='SHA-256 of method, path, query and body.', max_length=32)),
                        ('status', models.PositiveSmallIntegerField(help_text='Of HTTP; 0 while a gateway or scheduler is called.')),
                        ('content_type', models.CharField(max_length=100)),
                        ('body', models.BinaryField()),
                        ('created_at', models.DateTimeField()),
                    ],
                    options={
                        'indexes': [models.Index(models.F('created_at'), name='idempotent_requests_by_age')],
                        'constraints': [models.UniqueConstraint(fields=('owner', 'key'), name='idempotency_key_is_used_once')],
                    },
                ),
            ],
        ),
    ]
