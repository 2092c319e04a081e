import django.db.models.deletion
import django.db.models.functions.datetime
import portal.schema.operations
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
                    name='Event',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('type', models.CharField(choices=[('invoice.issued', 'Invoice Issued'), ('invoice.paid', 'Invoice Paid'), ('invoice.voided', 'Invoice Voided'), ('invoice.overdue', 'Invoice Overdue'), ('credit_note.issued', 'Credit Note Issued'), ('payment.succeeded', 'Payment Succeeded'), ('payment.failed', 'Payment Failed'), ('payment.needs_action', 'Payment Needs Action'), ('wallet.low', 'Wallet Low'), ('wallet.topped_up', 'Wallet Topped Up'), ('quota.threshold', 'Quota Threshold'), ('quota.blocked', 'Quota Blocked'), ('quota.lifted', 'Quota Lifted'), ('quota.reservation_lapsed', 'Quota Reservation Lapsed'), ('quota.ending', 'Quota Ending'), ('quota.ended', 'Quota Ended'), ('waste.found', 'Waste Found'), ('waste.ended', 'Waste Ended'), ('close.finished', 'Close Finished'), ('cluster.stale', 'Cluster Stale'), ('usage.quarantined', 'Usage Quarantined')], max_length=40)),
                        ('tenant', models.ForeignKey(help_text="Empty: the operators' own.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.tenant')),
                        ('kind', models.CharField(help_text='Of the object, as its ids in the API begin: inv, pay, wal.', max_length=8)),
                        ('key', models.BigIntegerField(help_text="The object's row.")),
                        ('state', models.CharField(help_text='Of the object, when this was written.', max_length=40)),
                        ('cause', models.CharField(default='', help_text='What is said once for each type; empty: each time.', max_length=100)),
                        ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When its transaction began.')),
                        ('number', models.BigIntegerField(help_text='Place among all events, in the order of commits; given after that.', null=True, unique=True)),
                        ('sequence', models.BigIntegerField(help_text="Place among the tenant's events: 1, 2, 3, without a gap.", null=True)),
                    ],
                    options={
                        'indexes': [models.Index(condition=models.Q(('number', None)), fields=['id'], name='events_without_a_number'), models.Index(fields=['tenant', 'number'], name='events_of_tenant'), models.Index(fields=['at'], name='events_by_age')],
                        'constraints': [models.UniqueConstraint(condition=models.Q(('cause', ''), _negated=True), fields=('type', 'cause'), name='event_is_written_once_for_its_cause'), models.CheckConstraint(condition=models.Q(models.Q(('number', None), ('sequence', None)), models.Q(('number__isnull', False), ('sequence__isnull', False)), _connector='OR'), name='event_has_both_places_or_none')],
                    },
                ),
                migrations.CreateModel(
                    name='EventCounter',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.tenant')),
                        ('sequence', models.BigIntegerField()),
                        ('number', models.BigIntegerField(help_text='Of the last one, among all.')),
                    ],
                    options={
                        'indexes': [models.Index(fields=['-number'], name='last_number_of_events')],
                        'constraints': [models.UniqueConstraint(fields=('tenant',), name='events_are_counted_once_a_tenant', nulls_distinct=False)],
                    },
                ),
            ],
        ),
    ]
