"""Wallets: double entry whose bookings add up to zero, read by their tenant alone."""

import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


SCOPED = (
    "billing_walletscheme",
    "billing_wallet",
    "billing_walletgrant",
    "billing_walletentry",
    "billing_wallethold",
)
MINE = "(SELECT nullif(current_setting('app.tenant_id', true), '')::bigint)"


def _protect(table: str) -> tuple[str, str]:
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY {table}_of_tenant ON {table} FOR SELECT TO clustertab_portal USING (tenant_id = {MINE});"
        f"GRANT SELECT ON {table} TO clustertab_portal;",
        f"REVOKE SELECT ON {table} FROM clustertab_portal;"
        f"DROP POLICY {table}_of_tenant ON {table};"
        f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0014_utilisation_of_own_jobs"),
        ("pghistory", "0007_auto_20250421_0444"),
        ("tenants", "0002_tax_is_a_percentage"),
    ]

    operations = [
        migrations.CreateModel(
            name="Accrual",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("through", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="GrantRule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("amount", models.BigIntegerField(help_text="Smallest units.")),
                (
                    "every",
                    models.CharField(
                        choices=[
                            ("once", "Once, at the opening"),
                            ("hour", "Each hour"),
                            ("day", "Each day"),
                            ("month", "Each billing period"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "begins_at",
                    models.DateTimeField(
                        help_text="Given from then on, or from the wallet's opening if that is later."
                    ),
                ),
                (
                    "ends_at",
                    models.DateTimeField(
                        blank=True, help_text="The first moment at which it gives nothing.", null=True
                    ),
                ),
                (
                    "cap",
                    models.BigIntegerField(
                        blank=True, help_text="The balance that it fills up to at most.", null=True
                    ),
                ),
                (
                    "priority",
                    models.PositiveSmallIntegerField(default=100, help_text="The lowest burns first."),
                ),
                (
                    "lasts_days",
                    models.PositiveIntegerField(blank=True, help_text="Empty: it never expires.", null=True),
                ),
            ],
        ),
        migrations.CreateModel(
            name="GrantRuleEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                ("name", models.CharField(max_length=100)),
                ("amount", models.BigIntegerField(help_text="Smallest units.")),
                (
                    "every",
                    models.CharField(
                        choices=[
                            ("once", "Once, at the opening"),
                            ("hour", "Each hour"),
                            ("day", "Each day"),
                            ("month", "Each billing period"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "begins_at",
                    models.DateTimeField(
                        help_text="Given from then on, or from the wallet's opening if that is later."
                    ),
                ),
                (
                    "ends_at",
                    models.DateTimeField(
                        blank=True, help_text="The first moment at which it gives nothing.", null=True
                    ),
                ),
                (
                    "cap",
                    models.BigIntegerField(
                        blank=True, help_text="The balance that it fills up to at most.", null=True
                    ),
                ),
                (
                    "priority",
                    models.PositiveSmallIntegerField(default=100, help_text="The lowest burns first."),
                ),
                (
                    "lasts_days",
                    models.PositiveIntegerField(blank=True, help_text="Empty: it never expires.", null=True),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="Wallet",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "user",
                    models.TextField(blank=True, help_text="The scheduler user; empty: not of one user."),
                ),
                ("unit", models.CharField(max_length=3)),
                ("opened_at", models.DateTimeField()),
                (
                    "balance",
                    models.BigIntegerField(
                        default=0, help_text="Sum of its balance entries; below zero: debt."
                    ),
                ),
                ("held", models.BigIntegerField(default=0, help_text="Sum of its standing holds.")),
            ],
        ),
        migrations.CreateModel(
            name="WalletBooking",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="tenants.tenant",
                    ),
                ),
                (
                    "rated_through",
                    models.BigIntegerField(default=0, help_text="Newest rated row that is booked."),
                ),
                ("due", models.BooleanField(default=True)),
            ],
        ),
        migrations.CreateModel(
            name="WalletDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("booked", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="WalletEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("booking", models.UUIDField()),
                (
                    "side",
                    models.CharField(
                        choices=[
                            ("balance", "Balance"),
                            ("granted", "Granted"),
                            ("used", "Used"),
                            ("spent", "Spent"),
                            ("expired", "Expired"),
                        ],
                        max_length=10,
                    ),
                ),
                ("amount", models.BigIntegerField(help_text="Signed smallest units.")),
                ("day", models.DateField(help_text="The service day of what was used.", null=True)),
                ("at", models.DateTimeField()),
                ("memo", models.TextField(blank=True)),
            ],
        ),
        migrations.CreateModel(
            name="WalletGrant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("rule", "By the scheme"),
                            ("top-up", "Top-up"),
                            ("gift", "Given by the operator"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        help_text="Given once under it: a rule's instant, a payment.", max_length=200
                    ),
                ),
                ("amount", models.BigIntegerField()),
                ("left", models.BigIntegerField(help_text="What is left of it.")),
                ("priority", models.PositiveSmallIntegerField(default=100)),
                ("usable_from", models.DateField()),
                (
                    "expires_on",
                    models.DateField(help_text="The first day that it does not pay for.", null=True),
                ),
                ("granted_at", models.DateTimeField()),
                ("who", models.CharField(max_length=200)),
                ("why", models.TextField(blank=True)),
                ("expired_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="WalletHold",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key",
                    models.CharField(help_text="What it is held for; held once under it.", max_length=200),
                ),
                ("amount", models.BigIntegerField()),
                ("placed_at", models.DateTimeField()),
                ("released_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="WalletScheme",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("tenant", "The tenant"),
                            ("project", "Each project"),
                            ("user", "Each scheduler user"),
                        ],
                        default="tenant",
                        max_length=10,
                    ),
                ),
                ("unit", models.CharField(help_text="ISO 4217 currency, or TOK for tokens.", max_length=3)),
                (
                    "overdraft",
                    models.BigIntegerField(
                        default=0,
                        help_text="How far below zero holds and spending may go, in smallest units.",
                    ),
                ),
                ("since", models.DateTimeField(help_text="Its wallets open then: rules give from then on.")),
            ],
        ),
        migrations.CreateModel(
            name="WalletSchemeEvent",
            fields=[
                ("pgh_id", models.AutoField(primary_key=True, serialize=False)),
                ("pgh_created_at", models.DateTimeField(auto_now_add=True)),
                ("pgh_label", models.TextField(help_text="The event label.")),
                ("id", models.BigIntegerField()),
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("tenant", "The tenant"),
                            ("project", "Each project"),
                            ("user", "Each scheduler user"),
                        ],
                        default="tenant",
                        max_length=10,
                    ),
                ),
                ("unit", models.CharField(help_text="ISO 4217 currency, or TOK for tokens.", max_length=3)),
                (
                    "overdraft",
                    models.BigIntegerField(
                        default=0,
                        help_text="How far below zero holds and spending may go, in smallest units.",
                    ),
                ),
                ("since", models.DateTimeField(help_text="Its wallets open then: rules give from then on.")),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="WalletTotal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("unit", models.CharField(max_length=3)),
                ("day", models.DateField()),
                ("user", models.TextField()),
                ("share_den", models.IntegerField()),
                (
                    "amount",
                    models.DecimalField(
                        decimal_places=12, help_text="Σ units × share_num × unit price.", max_digits=50
                    ),
                ),
                ("last_rated_id", models.BigIntegerField(help_text="Newest rated row in this sum.")),
            ],
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="plan",
            name="insert_insert",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="plan",
            name="update_update",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="plan",
            name="delete_delete",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="plan",
            name="used_currency_is_frozen",
        ),
        migrations.AddField(
            model_name="plan",
            name="settles",
            field=models.CharField(
                choices=[
                    ("invoice", "The period's invoice"),
                    ("wallet", "The wallet, as it is used; there is no invoice"),
                ],
                default="invoice",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="planevent",
            name="settles",
            field=models.CharField(
                choices=[
                    ("invoice", "The period's invoice"),
                    ("wallet", "The wallet, as it is used; there is no invoice"),
                ],
                default="invoice",
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="plan",
            name="currency",
            field=models.CharField(
                help_text="ISO 4217, or TOK for tokens; all prices of the plan are in it.", max_length=3
            ),
        ),
        migrations.AlterField(
            model_name="planevent",
            name="currency",
            field=models.CharField(
                help_text="ISO 4217, or TOK for tokens; all prices of the plan are in it.", max_length=3
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="plan",
            trigger=pgtrigger.compiler.Trigger(
                name="used_currency_is_frozen",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="\nIF (NEW.currency, NEW.settles) <> (OLD.currency, OLD.settles) AND EXISTS (\n    SELECT 1 FROM billing_periodtotal t JOIN billing_price p ON p.id = t.price_id\n    JOIN billing_planversion v ON v.id = p.version_id WHERE v.plan_id = OLD.id) THEN\n    RAISE EXCEPTION 'Usage has been rated by this plan in %, by %: make another plan.', OLD.currency, OLD.settles;\nEND IF;\nRETURN NEW;\n",
                    hash="5fb0b405edcf6779a1fea69df70498c2281b0a18",
                    operation="UPDATE",
                    pgid="pgtrigger_used_currency_is_frozen_9d095",
                    table="billing_plan",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="plan",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_planevent" ("currency", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "settles") VALUES (NEW."currency", NEW."id", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."settles"); RETURN NULL;',
                    hash="ea3fd1bf3e397d05d03d7e555d8f66a8d99795cd",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_85755",
                    table="billing_plan",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="plan",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_planevent" ("currency", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "settles") VALUES (NEW."currency", NEW."id", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."settles"); RETURN NULL;',
                    hash="e493cc6a3b7c49449b348bb4b0f0366b7556b967",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_586bc",
                    table="billing_plan",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="plan",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_planevent" ("currency", "id", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "settles") VALUES (OLD."currency", OLD."id", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."settles"); RETURN NULL;',
                    hash="18b8bd7de4e2428e9da3d7dc913ee819527e8465",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_92eaf",
                    table="billing_plan",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="plan",
            constraint=models.CheckConstraint(
                condition=models.Q(("settles__in", ["invoice", "wallet"])), name="plan_settlement_is_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="plan",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("currency", "TOK"), _negated=True), ("settles", "wallet"), _connector="OR"
                ),
                name="tokens_are_paid_by_wallet",
            ),
        ),
        migrations.AddField(
            model_name="accrual",
            name="rule",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.grantrule"
            ),
        ),
        migrations.AddField(
            model_name="grantruleevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="grantruleevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.grantrule",
            ),
        ),
        migrations.AddField(
            model_name="wallet",
            name="project",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project"
            ),
        ),
        migrations.AddField(
            model_name="wallet",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="wallets", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="accrual",
            name="wallet",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="accruals", to="billing.wallet"
            ),
        ),
        migrations.AddIndex(
            model_name="walletbooking",
            index=models.Index(condition=models.Q(("due", True)), fields=["due"], name="wallets_to_book"),
        ),
        migrations.AddField(
            model_name="walletday",
            name="wallet",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="days",
                to="billing.wallet",
            ),
        ),
        migrations.AddField(
            model_name="walletentry",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="walletentry",
            name="wallet",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="entries",
                to="billing.wallet",
            ),
        ),
        migrations.AddField(
            model_name="walletgrant",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="walletgrant",
            name="wallet",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="grants", to="billing.wallet"
            ),
        ),
        migrations.AddField(
            model_name="walletentry",
            name="grant",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="entries",
                to="billing.walletgrant",
            ),
        ),
        migrations.AddField(
            model_name="wallethold",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="wallethold",
            name="wallet",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="holds", to="billing.wallet"
            ),
        ),
        migrations.AddField(
            model_name="walletscheme",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="wallet_schemes",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="wallet",
            name="scheme",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="wallets", to="billing.walletscheme"
            ),
        ),
        migrations.AddField(
            model_name="grantruleevent",
            name="scheme",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="billing.walletscheme",
            ),
        ),
        migrations.AddField(
            model_name="grantrule",
            name="scheme",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="rules", to="billing.walletscheme"
            ),
        ),
        migrations.AddField(
            model_name="walletschemeevent",
            name="pgh_context",
            field=models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="pghistory.context",
            ),
        ),
        migrations.AddField(
            model_name="walletschemeevent",
            name="pgh_obj",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="events",
                to="billing.walletscheme",
            ),
        ),
        migrations.AddField(
            model_name="walletschemeevent",
            name="tenant",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                related_query_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddField(
            model_name="wallettotal",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.project",
            ),
        ),
        migrations.AddField(
            model_name="wallettotal",
            name="tenant",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="accrual",
            constraint=models.UniqueConstraint(
                fields=("wallet", "rule"), name="accrual_stands_once_per_rule"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletday",
            constraint=models.UniqueConstraint(fields=("wallet", "day"), name="wallet_day_is_booked_once"),
        ),
        migrations.AddIndex(
            model_name="walletgrant",
            index=models.Index(
                condition=models.Q(("left__gt", 0)), fields=["wallet"], name="grants_with_something_left"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletgrant",
            constraint=models.UniqueConstraint(fields=("wallet", "key"), name="grant_is_given_once"),
        ),
        migrations.AddConstraint(
            model_name="walletgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount__gt", 0)), name="grant_gives_something"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(("left__gte", 0), ("left__lte", models.F("amount"))),
                name="grant_is_left_in_part",
            ),
        ),
        migrations.AddConstraint(
            model_name="walletgrant",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["rule", "top-up", "gift"])), name="grant_kind_is_known"
            ),
        ),
        migrations.AddIndex(
            model_name="walletentry",
            index=models.Index(fields=["wallet", "id"], name="entries_of_wallet"),
        ),
        migrations.AddIndex(
            model_name="walletentry",
            index=models.Index(
                condition=models.Q(("day__isnull", False)), fields=["wallet", "day"], name="entries_of_day"
            ),
        ),
        migrations.AddIndex(
            model_name="walletentry",
            index=models.Index(fields=["booking"], name="entries_of_booking"),
        ),
        migrations.AddConstraint(
            model_name="walletentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount", 0), _negated=True), name="entry_is_not_nothing"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("grant__isnull", True), ("side", "balance"), _connector="OR"),
                name="entry_of_grant_is_balance",
            ),
        ),
        migrations.AddConstraint(
            model_name="walletentry",
            constraint=models.CheckConstraint(
                condition=models.Q(("side__in", ["balance", "granted", "used", "spent", "expired"])),
                name="entry_side_is_known",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="walletentry",
            trigger=pgtrigger.compiler.Trigger(
                name="entry_is_append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="7385e4be04693bf5491f1db1f36127b541028fee",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_entry_is_append_only_c61ee",
                    table="billing_walletentry",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="walletentry",
            trigger=pgtrigger.compiler.Trigger(
                name="booking_adds_up_to_zero",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    constraint="CONSTRAINT",
                    func="\nIF (SELECT sum(amount) FROM billing_walletentry WHERE booking = NEW.booking) <> 0 THEN\n    RAISE EXCEPTION 'The entries of booking % do not add up to zero.', NEW.booking;\nEND IF;\nRETURN NULL;\n",
                    hash="5f32ed80f1371b6038e247d602dff9e00c4bdc5e",
                    operation="INSERT",
                    pgid="pgtrigger_booking_adds_up_to_zero_e54de",
                    table="billing_walletentry",
                    timing="DEFERRABLE INITIALLY DEFERRED",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="wallethold",
            constraint=models.UniqueConstraint(fields=("wallet", "key"), name="hold_is_placed_once"),
        ),
        migrations.AddConstraint(
            model_name="wallethold",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount__gt", 0)), name="hold_is_not_nothing"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletscheme",
            constraint=models.UniqueConstraint(
                fields=("tenant", "unit"), name="tenant_has_one_scheme_per_unit"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletscheme",
            constraint=models.CheckConstraint(
                condition=models.Q(("overdraft__gte", 0)), name="overdraft_is_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="walletscheme",
            constraint=models.CheckConstraint(
                condition=models.Q(("scope__in", ["tenant", "project", "user"])), name="wallet_scope_is_known"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="walletscheme",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_walletschemeevent" ("id", "overdraft", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "scope", "since", "tenant_id", "unit") VALUES (NEW."id", NEW."overdraft", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."scope", NEW."since", NEW."tenant_id", NEW."unit"); RETURN NULL;',
                    hash="b8980032e405585eb3877a052dd781b171a941c0",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_cab2d",
                    table="billing_walletscheme",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="walletscheme",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_walletschemeevent" ("id", "overdraft", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "scope", "since", "tenant_id", "unit") VALUES (NEW."id", NEW."overdraft", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."scope", NEW."since", NEW."tenant_id", NEW."unit"); RETURN NULL;',
                    hash="c8aec2cda5b4fc7d904b7eaa80f9f8c7ddbd7550",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_312aa",
                    table="billing_walletscheme",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="walletscheme",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_walletschemeevent" ("id", "overdraft", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "scope", "since", "tenant_id", "unit") VALUES (OLD."id", OLD."overdraft", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."scope", OLD."since", OLD."tenant_id", OLD."unit"); RETURN NULL;',
                    hash="4a25c2d72652bc2b48c8fb3e32f3561bcbabcddb",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_31466",
                    table="billing_walletscheme",
                    when="AFTER",
                ),
            ),
        ),
        migrations.AddIndex(
            model_name="wallet",
            index=models.Index(fields=["tenant"], name="wallets_of_tenant"),
        ),
        migrations.AddConstraint(
            model_name="wallet",
            constraint=models.UniqueConstraint(
                fields=("scheme", "project", "user"), name="owner_has_one_wallet", nulls_distinct=False
            ),
        ),
        migrations.AddConstraint(
            model_name="wallet",
            constraint=models.CheckConstraint(
                condition=models.Q(("held__gte", 0)), name="held_is_not_negative"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="grantruleevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="66866929f4b1bd4031c391f8858ca889b3e216cb",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_828ac",
                    table="billing_grantruleevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="grantrule",
            constraint=models.UniqueConstraint(fields=("scheme", "name"), name="grant_rule_is_named_once"),
        ),
        migrations.AddConstraint(
            model_name="grantrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount__gt", 0)), name="grant_rule_gives_something"
            ),
        ),
        migrations.AddConstraint(
            model_name="grantrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("lasts_days__isnull", True), ("lasts_days__gt", 0), _connector="OR"),
                name="grant_rule_lasts_a_day",
            ),
        ),
        migrations.AddConstraint(
            model_name="grantrule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ends_at__isnull", True), ("ends_at__gt", models.F("begins_at")), _connector="OR"
                ),
                name="grant_rule_ends_after_it_begins",
            ),
        ),
        migrations.AddConstraint(
            model_name="grantrule",
            constraint=models.CheckConstraint(
                condition=models.Q(("every__in", ["once", "hour", "day", "month"])),
                name="grant_rule_interval_is_known",
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="grantrule",
            trigger=pgtrigger.compiler.Trigger(
                name="insert_insert",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_grantruleevent" ("amount", "begins_at", "cap", "ends_at", "every", "id", "lasts_days", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "scheme_id") VALUES (NEW."amount", NEW."begins_at", NEW."cap", NEW."ends_at", NEW."every", NEW."id", NEW."lasts_days", NEW."name", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."priority", NEW."scheme_id"); RETURN NULL;',
                    hash="067c4f7f4f7cb26398c9c1848059b1cf7db667e3",
                    operation="INSERT",
                    pgid="pgtrigger_insert_insert_59f55",
                    table="billing_grantrule",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="grantrule",
            trigger=pgtrigger.compiler.Trigger(
                name="update_update",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (OLD.* IS DISTINCT FROM NEW.*)",
                    func='INSERT INTO "billing_grantruleevent" ("amount", "begins_at", "cap", "ends_at", "every", "id", "lasts_days", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "scheme_id") VALUES (NEW."amount", NEW."begins_at", NEW."cap", NEW."ends_at", NEW."every", NEW."id", NEW."lasts_days", NEW."name", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."priority", NEW."scheme_id"); RETURN NULL;',
                    hash="b9dcb6c88c5769276c1e691af0337a00bfb2d6c8",
                    operation="UPDATE",
                    pgid="pgtrigger_update_update_925e1",
                    table="billing_grantrule",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="grantrule",
            trigger=pgtrigger.compiler.Trigger(
                name="delete_delete",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func='INSERT INTO "billing_grantruleevent" ("amount", "begins_at", "cap", "ends_at", "every", "id", "lasts_days", "name", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "priority", "scheme_id") VALUES (OLD."amount", OLD."begins_at", OLD."cap", OLD."ends_at", OLD."every", OLD."id", OLD."lasts_days", OLD."name", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."priority", OLD."scheme_id"); RETURN NULL;',
                    hash="cff9c755133b8feba9173b1357874da4db9590e5",
                    operation="DELETE",
                    pgid="pgtrigger_delete_delete_b32a6",
                    table="billing_grantrule",
                    when="AFTER",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="walletschemeevent",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="34dde6038a2c62c09cc4d54460cda93e124e51a4",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_927bf",
                    table="billing_walletschemeevent",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddConstraint(
            model_name="wallettotal",
            constraint=models.UniqueConstraint(
                fields=("tenant", "unit", "day", "project", "user", "share_den"),
                name="wallet_total_is_kept_once",
            ),
        ),
        *[migrations.RunSQL(*_protect(table)) for table in SCOPED],
    ]
