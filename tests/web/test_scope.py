"""Beneath the filters: what the database itself shows to a tenant's page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from django.db import ProgrammingError, connection, models, transaction

from billing import models as billing
from billing.queries import line_usage
from clusters import models as clusters
from portal.core.tenants import models as tenants
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, stream_in_scope, tenant_scope
from tests import sharing
from tests.web.house import House, a_house

CLOSED = (
    *(clusters.UsageRecord, clusters.Cluster, clusters.Account, clusters.Connection, clusters.VanishedRun),
    *(clusters.CapacityInterval, clusters.Pull),
    *(billing.Difference, billing.Reconciliation, billing.GatewayPayout, billing.GatewayMovement),
)
"""What no tenant's page may read."""

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

OWN: list[type[models.Model]] = [
    *(billing.BillingPeriod, billing.RatedUsage, billing.RatedJob, billing.PeriodTotal, billing.DayTotal),
    *(billing.UsageSeries, billing.DailyUsage, billing.Invoice, billing.InvoiceLine, billing.Subscription),
    *(tenants.Project, tenants.Ownership),
]


@pytest.mark.parametrize("model", OWN, ids=lambda model: model.__name__)
def test_a_forgotten_filter_shows_ones_own_rows_only(model: type[models.Model], house: House) -> None:
    everybodys = set(model._default_manager.values_list("tenant_id", flat=True))
    assert everybodys == {house.vision.pk, house.speech.pk}
    with tenant_scope(house.vision):
        assert set(model._default_manager.values_list("tenant_id", flat=True)) == {house.vision.pk}
    assert set(model._default_manager.values_list("tenant_id", flat=True)) == everybodys


def test_without_a_tenant_nothing_is_seen(house: House) -> None:
    with tenant_scope(house.vision), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.tenant_id', '', true)")
        assert [billing.RatedJob.objects.count(), Tenant.objects.count(), billing.Price.objects.count()] == [
            0,
            0,
            0,
        ]


def test_a_page_cannot_read_what_the_clusters_keep(house: House) -> None:
    for model in (*CLOSED, tenants.User, tenants.Membership):
        with pytest.raises(ProgrammingError, match="permission denied"), tenant_scope(house.vision):
            model._default_manager.first()


def test_a_page_cannot_write(house: House) -> None:
    for statement in (
        "UPDATE billing_ratedjob SET name = 'mine'",
        "DELETE FROM billing_periodtotal",
        "UPDATE tenants_tenant SET tax_rate = 0",
        "INSERT INTO billing_payment (amount) VALUES (1)",
    ):
        with (
            pytest.raises(ProgrammingError, match="permission denied"),
            tenant_scope(house.vision),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)


def test_eve_cannot_read_the_price_that_ann_negotiated(house: House) -> None:
    with tenant_scope(house.vision):
        assert [f"{price.unit_price:f}" for price in billing.Price.objects.all()] == ["2.000000000000"]
    with tenant_scope(house.speech):
        assert [f"{price.unit_price:f}" for price in billing.Price.objects.all()] == ["1.250000000000"]
        assert list(billing.Plan.objects.values_list("currency", flat=True)) == ["USD"]


def test_the_terms_of_a_plan_stay_hidden(house: House) -> None:
    for query in (billing.Plan.objects.values("name"), billing.PlanVersion.objects.values("charges")):
        with pytest.raises(ProgrammingError, match="permission denied"), tenant_scope(house.vision):
            list(query)


def test_the_scope_ends_with_its_block(house: House) -> None:
    with tenant_scope(house.vision):
        assert role() == ("clustertab_portal", str(house.vision.pk))
    assert role() == ("none", "")


def test_the_scope_ends_with_a_failure_too(house: House) -> None:
    with pytest.raises(ZeroDivisionError), tenant_scope(house.vision):
        raise ZeroDivisionError
    assert role()[0] == "none"
    with pytest.raises(ProgrammingError), tenant_scope(house.vision):
        clusters.Cluster.objects.first()
    assert role()[0] == "none"
    assert clusters.Cluster.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_scope_ends_with_its_transaction() -> None:
    house = a_house()
    with tenant_scope(house.vision):
        assert role()[0] == "clustertab_portal"
        assert not connection.get_autocommit()
    assert role() == ("none", "")
    with transaction.atomic(), tenant_scope(house.speech):
        assert billing.RatedJob.objects.count() == 1


def test_a_scope_of_acting_within_that_of_a_page_gives_it_back(house: House) -> None:
    with tenant_scope(house.vision):
        with acting_scope(house.vision):
            assert role() == ("clustertab_agent", str(house.vision.pk))
            assert billing.Plan.objects.values_list("name", flat=True)[0] == "vision-deal"
        assert role() == ("clustertab_portal", str(house.vision.pk))
        with suppress(ZeroDivisionError), acting_scope(house.vision):
            raise ZeroDivisionError
        assert role() == ("clustertab_portal", str(house.vision.pk))
    assert role() == ("none", "")


def test_a_table_is_streamed_inside_the_scope(house: House) -> None:
    seen = list(stream_in_scope(house.vision, (role()[0] for _ in range(2))))
    assert seen == ["clustertab_portal", "clustertab_portal"]
    assert role()[0] == "none"


def test_a_reader_who_hangs_up_leaves_nothing_behind(house: House) -> None:
    stream = stream_in_scope(house.vision, table(house))
    assert next(stream).startswith(b"invoice,line,")
    stream.close()
    assert role()[0] == "none"
    assert clusters.Cluster.objects.count() == 1


def table(house: House) -> Iterator[bytes]:
    invoice = house.invoice
    return line_usage.as_csv(invoice, list(invoice.lines.select_related("service_period")))


def role() -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('role'), coalesce(current_setting('app.tenant_id', true), '')")
        (name, tenant) = cursor.fetchone()
        return name, tenant
