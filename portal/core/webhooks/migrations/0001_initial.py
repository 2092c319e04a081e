import django.contrib.postgres.fields
import django.db.models.deletion
import portal.core.vault
import portal.core.vault.fields
import portal.schema.operations
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        portal.schema.operations.CreateModels(
            tables=[
                migrations.CreateModel(
                    name='Webhook',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='webhooks', to='tenants.tenant')),
                        ('name', models.CharField(help_text='Its name in addresses of the API.', max_length=60)),
                        ('url', models.CharField(help_text='Where events are posted to.', max_length=500)),
                        ('event_types', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=40), blank=True, default=list, help_text='Empty: all, later ones too.', size=None)),
                        ('secret', portal.core.vault.SealedField(default=portal.core.vault.fields.empty, help_text='Signs what is sent.')),
                        ('previous_secret', portal.core.vault.SealedField(default=portal.core.vault.fields.empty, help_text='Signs it too, until `previous_until`.')),
                        ('previous_until', models.DateTimeField(null=True)),
                        ('state', models.CharField(choices=[('active', 'Active'), ('off', 'Turned off'), ('gone', 'Turned off: the endpoint answered 410'), ('failing', 'Turned off: every attempt of 5 days failed')], default='active', max_length=10)),
                        ('maker', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('created_at', models.DateTimeField()),
                        ('failing_since', models.DateTimeField(help_text='First failure since the last success.', null=True)),
                        ('paused_until', models.DateTimeField(help_text='The endpoint asked for no attempt before.', null=True)),
                        ('claimed_until', models.DateTimeField(help_text='A worker sends to it until then, at the latest.', null=True)),
                        ('announced_at', models.DateTimeField(help_text='When its owners were mailed that it was turned off.', null=True)),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('tenant', 'name'), name='webhook_has_its_name_once_a_tenant', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('state__in', ['active', 'off', 'gone', 'failing'])), name='webhook_has_a_known_state')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='Delivery',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('webhook', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='webhooks.webhook')),
                        ('tenant', models.ForeignKey(help_text="The webhook's.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.tenant')),
                        ('event_number', models.BigIntegerField(help_text='Of the event; empty: a test.', null=True)),
                        ('type', models.CharField(max_length=40)),
                        ('created_at', models.DateTimeField()),
                        ('state', models.CharField(choices=[('waiting', 'Waiting'), ('delivered', 'Delivered'), ('failed', 'Failed'), ('stopped', 'Stopped: the webhook was turned off')], default='waiting', max_length=10)),
                        ('attempts', models.PositiveSmallIntegerField(default=0, help_text='Since it was sent, or sent again.')),
                        ('next_at', models.DateTimeField(help_text='Of the next attempt.', null=True)),
                        ('tried_at', models.DateTimeField(help_text='Of the last attempt.', null=True)),
                        ('status', models.PositiveSmallIntegerField(help_text='Of HTTP; empty: there was no answer.', null=True)),
                        ('milliseconds', models.PositiveIntegerField(help_text='How long the last attempt took.', null=True)),
                        ('answer', models.TextField(default='', help_text='The first 1,024 bytes of what was answered.')),
                        ('error', models.CharField(default='', help_text='Code of what kept it from an answer.', max_length=40)),
                    ],
                    options={
                        'indexes': [models.Index(models.F('webhook'), models.F('next_at'), models.F('event_number'), condition=models.Q(('next_at__isnull', False)), name='deliveries_due'), models.Index(fields=['webhook', '-id'], name='deliveries_of_webhook'), models.Index(fields=['created_at'], name='deliveries_by_age')],
                        'constraints': [models.UniqueConstraint(condition=models.Q(('event_number__isnull', False)), fields=('webhook', 'event_number'), name='event_is_delivered_once_to_a_webhook'), models.CheckConstraint(condition=models.Q(models.Q(('next_at__isnull', False), ('state', 'waiting')), models.Q(models.Q(('state', 'waiting'), _negated=True), ('next_at', None)), _connector='OR'), name='delivery_has_a_next_attempt_while_it_waits')],
                    },
                ),
            ],
        ),
    ]
