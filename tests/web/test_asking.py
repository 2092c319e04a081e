"""Several questions in one round trip, each connection keeping what it has planned."""

from __future__ import annotations

import pytest
from django.db import NotSupportedError, ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext

from billing import models as billing
from clusters import models as clusters
from portal.core.tenants.asking import Ask, Rows, together
from portal.core.tenants.scope import asking_scope, tenant_scope
from tests.web.house import House, a_house, page, signed_in

JOBS = "SELECT tenant_id, name LIKE '%%a' FROM billing_ratedjob WHERE shown_at > %s AND name <> %s"


def owners(*, is_prepared: bool = True) -> Ask[set[int]]:
    """Whose jobs can be seen, asked without a word about tenants."""

    def made(rows: Rows) -> set[int]:
        return {tenant for tenant, _ in rows}

    return Ask(JOBS, [0, "100 % O'Hara; %s"], made, kept=is_prepared)


def everybody(house: House) -> set[int]:
    return {house.vision.pk, house.speech.pk}


@pytest.mark.django_db
def test_what_is_asked_together_has_its_own_answer() -> None:
    house = a_house()
    count = Ask("SELECT count(*) FROM tenants_tenant", [], lambda rows: rows[0][0])
    named = Ask("SELECT %(a)s::int + %(b)s + %(a)s", {"a": 2, "b": 3}, lambda rows: rows[0][0], kept=True)
    for _ in range(2):  # the second time what is kept is there
        seen = owners()
        with CaptureQueriesContext(connection) as queries:
            together(count, named, seen, owners(is_prepared=False), owners())
        assert (count.answer, named.answer, seen.answer) == (2, 7, everybody(house))
        assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_what_is_kept_shows_each_tenant_its_own() -> None:
    house = a_house()
    for _ in range(7):  # beyond the fifth time the database may have settled on a plan
        assert owners().asked() == everybody(house)
        for tenant in (house.vision, house.speech):
            for scope in (asking_scope, tenant_scope):
                with scope(tenant):
                    assert owners().asked() == {tenant.pk}
        assert role() == ("none", "")


@pytest.mark.django_db(transaction=True)
def test_the_scope_of_a_question_holds_for_whatever_is_asked() -> None:
    house = a_house()
    with asking_scope(house.vision):
        assert connection.get_autocommit()  # no transaction is open around it
        assert role() == ("clustertab_portal", str(house.vision.pk))
        assert {job.tenant_id for job in billing.RatedJob.objects.all()} == {house.vision.pk}
        assert (
            billing.RatedJob.objects.count() == billing.RatedJob.objects.filter(tenant=house.vision).count()
        )
        with transaction.atomic():
            assert role()[0] == "clustertab_portal"
    assert role() == ("none", "")


@pytest.mark.django_db(transaction=True)
def test_in_the_scope_of_a_question_nothing_else_is_read_or_written() -> None:
    house = a_house()
    with asking_scope(house.vision):
        for model in (clusters.UsageRecord, clusters.Cluster):
            with pytest.raises(ProgrammingError, match="permission denied"):
                model.objects.first()
        with pytest.raises(ProgrammingError, match="permission denied"):
            billing.RatedJob.objects.update(name="mine")
        with pytest.raises(NotSupportedError, match="tenant_scope"):
            list(billing.RatedJob.objects.iterator())
        with pytest.raises(NotSupportedError, match="tenant_scope"), connection.cursor() as cursor:
            cursor.executemany("SELECT %s", [[1], [2]])
    assert role() == ("none", "")
    assert clusters.Cluster.objects.count() == 1


@pytest.mark.django_db
def test_inside_a_transaction_the_scope_is_that_of_a_transaction() -> None:
    house = a_house()
    with asking_scope(house.vision):
        assert owners().asked() == {house.vision.pk}
    assert role() == ("none", "")


@pytest.mark.django_db(transaction=True)
def test_a_pooler_that_changes_sessions_costs_time_only() -> None:
    house = a_house()
    assert owners().asked() == everybody(house)
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    with asking_scope(house.vision):
        assert owners().asked() == {house.vision.pk}
    assert owners().asked() == everybody(house)


@pytest.mark.django_db(transaction=True)
def test_another_question_that_fails_is_told() -> None:
    house = a_house()
    wrong = Ask("SELECT 1 / %s", [0], lambda rows: rows, kept=True)
    with pytest.raises(Exception, match="division by zero"):
        together(owners(), wrong)
    assert owners().asked() == everybody(house)


@pytest.mark.django_db(transaction=True)
def test_the_overview_takes_six_round_trips_outside_of_a_transaction() -> None:
    house = a_house()
    assert "INV-" in page(house.ann, "/t/vision-lab/?period=2026-03-01")
    client = signed_in(house.ann)
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/t/vision-lab/?period=2026-03-01").status_code == 200
    assert len(queries) == 6  # session, person, tenant, period, and twice within the tenant's scope


def role() -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('role'), coalesce(current_setting('app.tenant_id', true), '')")
        (name, tenant) = cursor.fetchone()
        return name, tenant
