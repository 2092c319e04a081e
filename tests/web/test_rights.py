"""Which login may do what: nothing that runs owns a table, and whoever acts for a tenant reaches its rows alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.conf import settings
from django.db import NotSupportedError, ProgrammingError, connection, transaction
from django.db.utils import IntegrityError

from billing import models as billing
from clusters import models as clusters
from portal.core.tenants import models as tenants
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.ops.schema import as_owner
from tests import builders, sharing
from tests.owner import as_owner as owning
from tests.web.house import House, a_house, page
from tests.web.test_scope import OWN, role

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

OF_TENANTS = """
SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,
       EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid
               AND p.polroles = ARRAY['clustertab_operator'::regrole::oid] AND pg_get_expr(p.polqual, c.oid) = 'true')
FROM pg_class c
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
  AND (c.relrowsecurity OR c.relname = 'tenants_tenant' OR EXISTS (
      SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id'))
"""


def test_row_level_security_is_forced_on_every_table_of_a_tenant_and_operators_see_all_rows() -> None:
    """A new table is said in `portal/schema/policies.sql`. Without the policy of operators a backup would lack rows."""
    with connection.cursor() as cursor:
        cursor.execute(OF_TENANTS)
        rows = cursor.fetchall()
    assert len(rows) >= 50
    assert [row for row in rows if not all(row[1:])] == []


@pytest.mark.skipif(settings.DATABASE_OWNER_URL == settings.DATABASE_URL, reason="one login for both")
def test_the_login_of_everything_owns_nothing_and_changes_no_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_class"
            " WHERE relowner = current_user::regrole AND relnamespace = 'public'::regnamespace"
        )
        assert cursor.fetchone() == (0,)
        cursor.execute(
            "SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        )
        assert cursor.fetchone() == (False, False, False)
    for statement in (
        "ALTER TABLE billing_invoice DISABLE TRIGGER USER",
        "ALTER TABLE billing_invoice NO FORCE ROW LEVEL SECURITY",
        "DROP POLICY billing_invoice_of_tenant ON billing_invoice",
        "TRUNCATE billing_payment CASCADE",
        "CREATE TABLE mine ()",
        "UPDATE schema_level SET complete = false",
    ):
        with pytest.raises(ProgrammingError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


@pytest.mark.skipif(settings.DATABASE_OWNER_URL == settings.DATABASE_URL, reason="one login for both")
@pytest.mark.django_db(transaction=True)
def test_only_what_migrates_signs_in_as_the_owner() -> None:
    def login() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_user")
            return str(cursor.fetchone()[0])

    with as_owner():
        assert login() == "clustertab_owner"
    assert login() == "clustertab"


@pytest.mark.parametrize("model", OWN, ids=lambda model: model.__name__)
def test_whoever_acts_for_a_tenant_sees_its_rows_alone(model: type[billing.Invoice], house: House) -> None:
    with acting_scope(house.vision):
        assert set(model._default_manager.values_list("tenant_id", flat=True)) == {house.vision.pk}
        assert list(Tenant.objects.values_list("slug", flat=True)) == ["vision-lab"]
        assert list(billing.Plan.objects.values_list("name", flat=True)) == ["vision-deal"]
        assert {price.version.plan.name for price in billing.Price.objects.all()} == {"vision-deal"}
    assert role() == ("none", "")


def test_whoever_acts_for_a_tenant_reads_no_name_of_another_s_account(house: House) -> None:
    builders.ingest(house.cluster, builders.a_job(account="nobody-s"), as_of="2026-04-21")
    assert set(clusters.Account.objects.values_list("name", flat=True)) == {"vision", "speech", "nobody-s"}
    with acting_scope(house.vision):
        assert list(clusters.Account.objects.values_list("name", flat=True)) == ["vision"]


def test_whoever_acts_for_a_tenant_writes_its_rows_alone(house: House) -> None:
    assert house.card.preferred
    with acting_scope(house.speech):
        assert billing.SavedMethod.objects.update(preferred=False) == 0
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            billing.BillingAccount.objects.create(tenant_id=house.vision.pk)
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            billing.Price.objects.update(unit_price=0)
    with acting_scope(house.vision):
        assert billing.SavedMethod.objects.update(preferred=False) == 1
    assert role() == ("none", "")


def test_whoever_acts_for_a_tenant_changes_among_public_plans_alone(house: House) -> None:
    """Else a subscription to a plan of somebody else would show what that costs; raw SQL, beneath all code."""
    deal = billing.Plan.objects.get(name="vision-deal").pk
    own = billing.Subscription.objects.get(tenant=house.speech).plan_id
    public = builders.a_plan("public", "USD")
    billing.Plan.objects.filter(pk=public.pk).update(public=True)
    insert = (
        "INSERT INTO billing_subscription (tenant_id, plan_id, since, until)"
        " VALUES (%s, %s, '1990-01-01', '1991-01-01')"
    )
    with acting_scope(house.speech), connection.cursor() as cursor:
        for statement, values in (
            (insert, [house.speech.pk, deal]),
            (insert, [house.vision.pk, public.pk]),
        ):
            with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
                cursor.execute(statement, values)
        for statement, values in (
            ("UPDATE billing_subscription SET plan_id = %s", [deal]),
            ("UPDATE billing_subscription SET until = now()", []),
            ("DELETE FROM billing_subscription", []),
        ):
            cursor.execute(statement, values)
            assert cursor.rowcount == 0  # what operators agreed with it is not its to change
        cursor.execute(
            "SELECT count(*) FROM billing_price WHERE version_id IN "
            "(SELECT id FROM billing_planversion WHERE plan_id = %s)",
            [deal],
        )
        assert cursor.fetchone() == (0,)
    assert billing.Subscription.objects.get(tenant=house.speech).plan_id == own


def test_whoever_acts_for_a_tenant_reads_neither_jobs_nor_what_banks_and_stripe_say(house: House) -> None:
    assert house.transfer.amount
    for model in (
        *(clusters.UsageRecord, clusters.Connection, clusters.Quarantined),
        *(
            billing.Transfer,
            billing.BankStatement,
            billing.GatewayEvent,
            billing.GatewayPayout,
            billing.Difference,
        ),
    ):
        with acting_scope(house.vision):
            try:
                with transaction.atomic():
                    assert not model._default_manager.exists(), model
            except ProgrammingError as error:
                assert "permission denied" in str(error)  # noqa: PT017 - either will do
    assert role() == ("none", "")


def test_whoever_acts_for_a_tenant_sees_the_addresses_of_its_own_people_alone(house: House) -> None:
    with acting_scope(house.vision):
        emails = {*tenants.User.objects.values_list("email", flat=True)}
        assert emails == {house.ann.email, house.carla.email, house.ben.email}
        assert tenants.Membership.objects.count() == 3
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            list(tenants.User.objects.values_list("password", flat=True))
        with transaction.atomic():  # its own people, as the page Team changes them, and nobody else's
            assert tenants.Membership.objects.update(role="owner") == 3
            transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_acting_lasts_over_transactions_and_failures_and_ends_with_its_block() -> None:
    house = a_house()
    twice = [billing.BillingAccount(tenant=house.vision) for _ in range(2)]
    with acting_scope(house.vision):
        assert role() == ("clustertab_agent", str(house.vision.pk))
        with transaction.atomic():
            with pytest.raises(IntegrityError), transaction.atomic():
                billing.BillingAccount.objects.bulk_create(twice)
            assert role()[0] == "clustertab_agent"
            transaction.set_rollback(True)
        assert role()[0] == "clustertab_agent"
        with pytest.raises(NotSupportedError):
            list(billing.Invoice.objects.iterator())
    assert role() == ("none", "")
    with suppress(ZeroDivisionError), acting_scope(house.vision):
        raise ZeroDivisionError
    assert role() == ("none", "")
    assert Tenant.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_whoever_works_in_tables_of_the_session_comes_after_whoever_did_before() -> None:
    """One process serves operators and tenants: neither meets the other's working tables."""
    house = a_house()
    for day in ("2026-04-21", "2026-04-22"):
        builders.ingest(house.cluster, builders.a_job(job_id=day), as_of=day)  # as an operator
        assert "$4.00" in page(house.ann, "/t/vision-lab/quote/?hours=2&gpus=1&gpu_model=a100")


def test_the_owner_is_bound_too() -> None:
    """It sees rows as a member of the operators' role, and would see none without."""
    a_house()
    with owning() as cursor:
        cursor.execute("SELECT row_security_active('billing_invoice')")
        assert cursor.fetchone() == (True,)
        cursor.execute("SELECT count(*) FROM tenants_tenant")
        assert cursor.fetchone() == (2,)
