import django.contrib.postgres.constraints
import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
import portal.core.tenants.electronic_address
import portal.core.tenants.models.tenants
import portal.core.vault
import portal.core.vault.fields
import portal.schema.operations
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '__first__'),
        ('clusters', '0001_initial'),
    ]

    operations = [
        portal.schema.operations.CreateModels(
            tables=[
                migrations.CreateModel(
                    name='User',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('password', models.CharField(max_length=128, verbose_name='password')),
                        ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                        ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                        ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                        ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                        ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                        ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                        ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                        ('email', models.EmailField(max_length=254, unique=True, verbose_name='e-mail address')),
                        ('operator_role', models.CharField(blank=True, choices=[('support', 'Support: sees everything, changes nothing'), ('finance', 'Finance: tenants, plans, closes, credits, payments'), ('cluster', 'Cluster: clusters, schedulers, imports'), ('admin', 'Admin: everything, operators included')], help_text='Blank: no operator.', max_length=10)),
                        ('language', models.CharField(blank=True, choices=[('en', 'English'), ('de', 'Deutsch')], help_text="Of pages. Blank: the browser's.", max_length=2)),
                        ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                        ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
                    ],
                    options={
                        'verbose_name': 'user',
                        'verbose_name_plural': 'users',
                        'abstract': False,
                        'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('is_staff', False), ('is_superuser', False), ('operator_role', '')), models.Q(('is_staff', True), ('is_superuser', True), ('operator_role', 'admin')), models.Q(('is_staff', True), ('is_superuser', False), ('operator_role__in', ['support', 'finance', 'cluster'])), _connector='OR'), name='user_flags_follow_from_the_operator_role'), models.CheckConstraint(condition=models.Q(('language__in', ['', 'en', 'de'])), name='user_language_is_known')],
                        'indexes': [],
                    },
                    managers=[
                        ('objects', portal.core.tenants.models.tenants.UserManager()),
                    ],
                ),
                migrations.CreateModel(
                    name='Tenant',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('slug', models.SlugField(help_text='Slug; never changes.', unique=True)),
                        ('name', models.CharField(help_text='As it stands on invoices.', max_length=200)),
                        ('timezone', models.CharField(default='UTC', help_text='IANA zone of its billing periods.', max_length=64, validators=[portal.core.tenants.models.tenants.validate_zone])),
                        ('anchor_day', models.PositiveSmallIntegerField(default=1, help_text='Day of the month on which its periods start; 31 means the last day.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(31)])),
                        ('language', models.CharField(choices=[('en', 'English'), ('de', 'Deutsch')], default='en', help_text='Of its e-mails and documents; those that are issued keep theirs.', max_length=2)),
                        ('address', models.TextField(blank=True, help_text='Postal address, line by line: without post code and city where they stand below.')),
                        ('postcode', models.CharField(blank=True, max_length=20, verbose_name='post code')),
                        ('city', models.CharField(blank=True, max_length=100)),
                        ('vat_id', models.CharField(blank=True, max_length=40, verbose_name='VAT id')),
                        ('email', models.EmailField(blank=True, max_length=254, verbose_name='billing e-mail')),
                        ('electronic_address', models.CharField(blank=True, help_text='Where it takes e-invoices, as scheme:identifier, such as 0204:991-01234-44; empty: by its e-mail.', max_length=100, validators=[portal.core.tenants.electronic_address.electronic_address])),
                        ('buyer_reference', models.CharField(blank=True, help_text='What the buyer routes its invoices by; of a public buyer in Germany its Leitweg-ID. With one, its e-invoices are XRechnungen.', max_length=100, validators=[portal.core.tenants.electronic_address.buyer_reference])),
                        ('purchase_order', models.CharField(blank=True, max_length=100)),
                        ('tax_rate', models.DecimalField(decimal_places=3, default=0, help_text='Per cent.', max_digits=6, validators=[django.core.validators.MinValueValidator(0)])),
                        ('country', models.CharField(blank=True, help_text='ISO 3166-1, two letters: DE, US.', max_length=2, validators=[django.core.validators.RegexValidator('^[A-Z]{2}$', 'write the two letters of ISO 3166-1, such as DE or US.')])),
                        ('region', models.CharField(blank=True, help_text='Where the tax depends on it: CA for California.', max_length=10, verbose_name='state')),
                        ('tax_treatment', models.CharField(blank=True, choices=[('', 'At the tax rate given here'), ('by-country', 'By the countries of seller and tenant, and their VAT ids'), ('reverse-charge', 'Reverse charge'), ('exempt', 'Exempt, for the reason given here'), ('outside', 'Outside the scope of tax')], max_length=14)),
                        ('tax_category', models.SlugField(default='standard', help_text='Of the rates that its country has.', max_length=30)),
                        ('tax_reason', models.CharField(blank=True, help_text='Stands on invoices: why no tax is charged, with the law.', max_length=300)),
                        ('payment_terms_days', models.PositiveSmallIntegerField(default=14)),
                        ('corrections', models.CharField(blank=True, choices=[('next-invoice', 'On the next invoice'), ('credit-note', 'What was too much on a credit note, what was missing on the next invoice'), ('own-invoice', 'What was too much on a credit note, what was missing on an invoice of its own')], help_text='Empty: as the seller does.', max_length=12)),
                        ('zero_invoices', models.CharField(blank=True, choices=[('skip', 'No invoice'), ('issue', 'An invoice of nothing, which is paid at once')], help_text='Empty: as the seller does.', max_length=5)),
                        ('second_factor', models.BooleanField(default=False, help_text='Its members need a second factor to sign in: an app, a passkey or a key.')),
                        ('members_see_own', models.BooleanField(default=False, help_text='Those with the role member see their own jobs and the totals of their projects alone.')),
                    ],
                    options={
                        'constraints': [models.CheckConstraint(condition=models.Q(('zero_invoices__in', ['', 'skip', 'issue'])), name='tenant_zero_invoices_are_known'), models.CheckConstraint(condition=models.Q(('country', ''), ('country__regex', '^[A-Z]{2}$'), _connector='OR'), name='tenant_country_is_two_letters'), models.CheckConstraint(condition=models.Q(('electronic_address', ''), ('electronic_address__regex', '^[0-9A-Z]+:\\S+$'), _connector='OR'), name='tenant_electronic_address_has_a_scheme'), models.CheckConstraint(condition=models.Q(('tax_treatment__in', ['', 'by-country', 'reverse-charge', 'exempt', 'outside'])), name='tenant_tax_treatment_is_known'), models.CheckConstraint(condition=models.Q(models.Q(('tax_treatment', 'exempt'), _negated=True), models.Q(('tax_reason', ''), _negated=True), _connector='OR'), name='tenant_exemption_says_why'), models.CheckConstraint(condition=models.Q(models.Q(('tax_treatment', 'reverse-charge'), _negated=True), models.Q(models.Q(('country', ''), _negated=True), models.Q(('vat_id', ''), _negated=True)), _connector='OR'), name='tenant_of_reverse_charge_has_country_and_vat_id'), models.CheckConstraint(condition=models.Q(('anchor_day__range', (1, 31))), name='tenant_anchor_is_a_day'), models.CheckConstraint(condition=models.Q(('language__in', ['en', 'de'])), name='tenant_language_is_known'), models.CheckConstraint(condition=models.Q(('tax_rate__range', (0, 100))), name='tenant_tax_is_a_percentage'), models.CheckConstraint(condition=models.Q(('corrections__in', ['', 'next-invoice', 'credit-note', 'own-invoice'])), name='tenant_corrections_are_known')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='BrandLogo',
                    fields=[
                        ('digest', models.CharField(help_text='SHA-256 of the PNG, in hexadecimal.', max_length=64, primary_key=True, serialize=False)),
                        ('png', models.BinaryField()),
                        ('width', models.PositiveSmallIntegerField(help_text='Pixels.')),
                        ('height', models.PositiveSmallIntegerField(help_text='Pixels.')),
                    ],
                    options={
                        'constraints': [models.CheckConstraint(condition=models.Q(('height__gt', 0), ('width__gt', 0)), name='brand_logo_has_a_size')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='IdentityProvider',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('name', models.SlugField(help_text='Its name in addresses.', unique=True)),
                        ('title', models.CharField(help_text='As the sign-in page has it.', max_length=60)),
                        ('url', models.CharField(help_text='The issuer, below which its configuration is found.', max_length=500)),
                        ('client_id', models.CharField(max_length=191)),
                        ('client_secret', portal.core.vault.SealedField(default=portal.core.vault.fields.empty, help_text='By which it knows us.')),
                        ('domains', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=253), help_text='In lower case.', size=None)),
                        ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100), blank=True, default=list, help_text='Further ones.', size=None)),
                        ('groups_claim', models.CharField(default='groups', max_length=255)),
                        ('tenant_claim', models.CharField(blank=True, max_length=255)),
                        ('operators', models.BooleanField(default=False, help_text='Operators may sign in by it, too.')),
                        ('sign_out', models.BooleanField(default=False, help_text='A person who signed in by it and signs out here is redirected there to sign out, too.')),
                        ('enabled', models.BooleanField(default=True)),
                    ],
                    options={
                        'indexes': [],
                        'constraints': [],
                    },
                ),
                migrations.CreateModel(
                    name='Project',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='tenants.tenant')),
                        ('name', models.CharField(max_length=200)),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('tenant', 'name'), name='project_is_named_once_per_tenant')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='Membership',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='tenants.tenant')),
                        ('role', models.CharField(choices=[('owner', 'Owner: everything, people included'), ('billing', 'Billing: invoices and payment'), ('viewer', 'Viewer: sees all of it, changes nothing'), ('member', 'Member: usage and its cost')], default='member', max_length=10)),
                        ('scheduler_users', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100), blank=True, default=list, help_text='User names of its jobs.', size=None)),
                        ('through', models.CharField(blank=True, help_text='The identity provider whose grants give the role; empty: by hand.', max_length=50)),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('user', 'tenant'), name='membership_is_held_once'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'billing', 'viewer', 'member'])), name='membership_role_is_known')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='Invitation',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='tenants.tenant')),
                        ('email', models.EmailField(help_text='In lower case; whoever accepts signs in with it.', max_length=254, verbose_name='e-mail address')),
                        ('role', models.CharField(choices=[('owner', 'Owner: everything, people included'), ('billing', 'Billing: invoices and payment'), ('viewer', 'Viewer: sees all of it, changes nothing'), ('member', 'Member: usage and its cost')], max_length=10)),
                        ('inviter', models.CharField(help_text='The address of whoever invited, as the mail says it.', max_length=254)),
                        ('created_at', models.DateTimeField()),
                        ('expires_at', models.DateTimeField()),
                        ('generation', models.PositiveIntegerField(default=1, help_text='Of the link: those before it are not valid.')),
                        ('accepted_at', models.DateTimeField(null=True)),
                        ('revoked_at', models.DateTimeField(null=True)),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(condition=models.Q(('accepted_at', None), ('revoked_at', None)), fields=('tenant', 'email'), name='invitation_is_open_once_per_address'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'billing', 'viewer', 'member'])), name='invitation_role_is_known'), models.CheckConstraint(condition=models.Q(('email', django.db.models.functions.text.Lower(models.F('email')))), name='invitation_email_is_lower_case'), models.CheckConstraint(condition=models.Q(('accepted_at', None), ('revoked_at', None), _connector='OR'), name='invitation_ends_in_one_way')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='SupportView',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='support_views', to='tenants.tenant')),
                        ('viewer', models.CharField(help_text="The operator's address.", max_length=254)),
                        ('reason', models.CharField(help_text='The tenant reads it in its history.', max_length=300)),
                        ('begun_at', models.DateTimeField()),
                        ('expires_at', models.DateTimeField()),
                        ('ended_at', models.DateTimeField(null=True)),
                    ],
                    options={
                        'constraints': [models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='support_view_has_a_reason')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='TenantNote',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                        ('author', models.CharField(help_text="The operator's address.", max_length=254)),
                        ('text', models.CharField(max_length=2000)),
                        ('created_at', models.DateTimeField()),
                    ],
                    options={
                        'indexes': [models.Index(models.F('tenant'), models.F('created_at'), name='notes_of_tenant')],
                        'constraints': [models.CheckConstraint(condition=models.Q(('text', ''), _negated=True), name='tenant_note_has_a_text')],
                    },
                ),
                migrations.CreateModel(
                    name='Exclusion',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                        ('email', models.EmailField(help_text='In lower case.', max_length=254, verbose_name='e-mail address')),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('tenant', 'email'), name='exclusion_is_said_once'), models.CheckConstraint(condition=models.Q(('email', django.db.models.functions.text.Lower(models.F('email')))), name='exclusion_email_is_lower_case')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='Brand',
                    fields=[
                        ('id', models.SmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                        ('name', models.CharField(blank=True, help_text='Empty: ClusterTab.', max_length=40)),
                        ('color', models.CharField(blank=True, help_text='#rrggbb. Empty: the blue of ClusterTab.', max_length=7)),
                        ('logo', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.brandlogo')),
                    ],
                    options={
                        'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='there_is_one_brand'), models.CheckConstraint(condition=models.Q(('color', ''), ('color__regex', '^#[0-9a-f]{6}$'), _connector='OR'), name='brand_color_is_a_color')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='IdentityGrant',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('provider', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='grants', to='tenants.identityprovider')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                        ('role', models.CharField(choices=[('owner', 'Owner: everything, people included'), ('billing', 'Billing: invoices and payment'), ('viewer', 'Viewer: sees all of it, changes nothing'), ('member', 'Member: usage and its cost')], max_length=10)),
                        ('domain', models.CharField(blank=True, help_text='Of a verified e-mail address.', max_length=253)),
                        ('claim', models.CharField(blank=True, help_text='Value of the tenant claim.', max_length=255)),
                        ('group', models.CharField(blank=True, help_text='In the groups claim.', max_length=255)),
                    ],
                    options={
                        'constraints': [models.UniqueConstraint(fields=('tenant', 'provider', 'domain', 'claim', 'group'), name='identity_grant_is_said_once'), models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'billing', 'viewer', 'member'])), name='identity_grant_role_is_known'), models.CheckConstraint(condition=models.Q(('claim', ''), ('domain', ''), ('group', ''), _negated=True), name='identity_grant_asks_for_something')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='Ownership',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('account', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ownerships', to='clusters.account')),
                        ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ownerships', to='tenants.tenant')),
                        ('project', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.project')),
                        ('since', models.DateTimeField(blank=True, null=True)),
                        ('until', models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        'constraints': [django.contrib.postgres.constraints.ExclusionConstraint(expressions=[(models.Func(models.F('account'), models.F('account'), models.Value('[]'), function='int8range'), '&&'), (models.Func('since', 'until', models.Value('[)'), function='tstzrange'), '&&')], name='account_has_one_owner_at_a_time'), models.CheckConstraint(condition=models.Q(('since__isnull', True), ('until__isnull', True), ('until__gt', models.F('since')), _connector='OR'), name='ownership_ends_after_it_starts')],
                        'indexes': [],
                    },
                ),
                migrations.CreateModel(
                    name='AccountMail',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                        ('invitation', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='mails', to='tenants.invitation')),
                        ('kind', models.CharField(choices=[('invitation', 'Invitation'), ('joined', 'Somebody joined'), ('role', 'Role in a tenant'), ('removed', 'Removed from a tenant'), ('operator', 'Role of an operator'), ('approved', 'Sign-up is active'), ('refused', 'Sign-up was refused')], max_length=10)),
                        ('to', models.EmailField(max_length=254)),
                        ('values', models.JSONField(default=dict, help_text='What its text is filled in with.')),
                        ('created_at', models.DateTimeField()),
                        ('due_at', models.DateTimeField(help_text='Nobody sends it before; null: sent, or given up.', null=True)),
                        ('attempts', models.PositiveSmallIntegerField(default=0)),
                        ('sent_at', models.DateTimeField(null=True)),
                    ],
                    options={
                        'indexes': [models.Index(models.F('due_at'), condition=models.Q(('due_at__isnull', False)), name='account_mails_due'), models.Index(models.F('tenant'), models.F('created_at'), name='account_mails_of_tenant')],
                        'constraints': [],
                    },
                ),
            ],
        ),
    ]
