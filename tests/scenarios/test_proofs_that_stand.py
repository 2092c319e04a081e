"""A month is proved once; what is written afterwards has it proved again, whoever writes and whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.catalog import plans
from billing.invoicing import credit_notes, voids
from billing.models import MonthProof, MonthSum, Price, ProofMark
from billing.proof import checks, months
from billing.rules.meters import PerUnit
from clusters.connectors.base import UsageFact
from clusters.models import Account, UsageRecord
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import LATER, LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.owner import as_owner
from tests.stories import close, closed, hours, invoice_of, prove

pytestmark = pytest.mark.django_db

JANUARY, FEBRUARY, MARCH = (date(2026, month, 1) for month in (1, 2, 3))


def a_lab() -> Tenant:
    """A job of four GPUs for an hour in each of January, February and March, billed and proved."""
    cluster = a_cluster(complete_through="2026-04-01")
    lab = a_tenant("lab", plan=a_plan(), accounts=[(cluster, "vision")])
    for month in (1, 2, 3):
        ingest(cluster, a_month(month))
    for month in (1, 2, 3):
        closed(f"2026-0{month}", lab)
    UsageRecord.objects.update(last_seen=at("2026-04-03"))
    assert checks.prove(moment=LATER).recomputed == [JANUARY, FEBRUARY, MARCH]
    return lab


begun, lab = sharing.fixtures(a_lab, "lab")


def a_month(month: int, **fields: Any) -> UsageFact:
    started, ended = f"2026-0{month}-02 10:00", f"2026-0{month}-02 11:00"
    return a_job(**{"job_id": str(month), "gpus": 4, "started": started, "ended": ended} | fields)


def recomputed() -> list[date]:
    """What a proof recomputes now; it finds what one in full finds, and is kept."""
    now = checks.prove(moment=LATER)
    prove()
    return list(now.recomputed)


def test_a_proof_that_stands_is_not_made_again(lab: Tenant) -> None:
    assert recomputed() == []
    assert prove()["billed"] == hours(12)
    assert checks.prove(full=True).recomputed == [JANUARY, FEBRUARY, MARCH]


def test_a_close_bills_what_was_proved_before_and_needs_no_other_proof(lab: Tenant) -> None:
    """What is billed or pending, documents say: it is read each time."""
    cluster = a_cluster()
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 12:00"))
    assert recomputed() == [date(2026, 4, 1)]
    assert prove()["pending"] == hours(2)
    cluster.complete_through = at("2026-05-01")
    cluster.save()
    closed("2026-04", lab)
    assert checks.prove().recomputed == []
    assert prove() == prove() | {"billed": hours(14), "pending": 0}
    voids.void_invoice(invoice=invoice_of(lab, "2026-04"), reason="Wrong.", by="op", on=date(2026, 5, 4))
    assert checks.prove().recomputed == []
    assert prove() == prove() | {"billed": hours(12), "pending": hours(2)}


def test_late_and_restated_usage_touches_its_months_alone(lab: Tenant) -> None:
    cluster = a_cluster()
    ingest(cluster, a_job(job_id="late", started="2026-01-05 10:00", ended="2026-01-05 11:00"))
    assert recomputed() == [JANUARY]
    ingest(cluster, a_month(2, gpus=2))
    assert recomputed() == [FEBRUARY]
    assert prove()["billed"] == hours(12)  # until the next close takes back two hours, and bills one
    ingest(cluster, a_job(job_id="april", started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    cluster.complete_through = at("2026-05-01")
    cluster.save()
    closed("2026-04", lab)
    prove()


def test_a_run_over_the_border_of_a_month_touches_both(lab: Tenant) -> None:
    ingest(a_cluster(), a_job(started="2026-01-31 20:00", ended="2026-02-01 04:00"))
    assert recomputed() == [JANUARY, FEBRUARY]


def test_owners_plans_and_prices_with_effect_for_the_past_have_their_months_proved_again(lab: Tenant) -> None:
    price = Price.objects.get()
    plans.correct_price(price=price, model=PerUnit(Decimal(3)), reason="Agreed on.")
    outbox.drain()
    prove()
    account = Account.objects.get()
    own(a_tenant("other"), a_cluster(), "elsewhere")
    assert recomputed() == []  # whoever has used nothing is in no sum
    ownership.assign(
        account=account, tenant=a_tenant("audio"), project="", since=at("2026-03-01"), until=None
    )
    outbox.add("billing.tasks.rate_accounts", account_ids=[account.pk])
    outbox.drain()
    assert recomputed() == [MARCH]


def test_an_owner_that_was_changed_shows_before_its_usage_is_rated_again(lab: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tenants_ownership SET since = '2026-02-01'")
    proof = checks.prove()
    assert not proof.holds
    assert proof.recomputed == [JANUARY]


def test_a_moved_border_of_a_period_has_its_month_proved_again(lab: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """UPDATE billing_billingperiod SET "end" = "end" - interval '28 days' WHERE start = '2026-03-01'"""
        )
    assert checks.prove().recomputed == [MARCH]


def test_credit_notes_are_compared_with_what_was_proved(lab: Tenant) -> None:
    credit_notes.issue_credit_note(
        invoice=invoice_of(lab, "2026-03"), reason="Slow.", by="op", on=date(2026, 5, 4)
    )
    assert recomputed() == []


MADE_UP = [
    ("UPDATE clusters_usagerecord SET gpus = 5 WHERE job_id = '2'", "job 2 of gpu1/vision"),
    (
        "UPDATE billing_ratedusage SET units = units - 1 WHERE service_month = '2026-02-01'",
        "job 2 of gpu1/vision",
    ),
    ("DELETE FROM billing_ratedusage WHERE service_month = '2026-02-01'", "job 2 of gpu1/vision"),
    ("UPDATE billing_ratedjob SET \"user\" = 'eve' WHERE job_id = '2'", "gpu of {eve,vision"),
    ("UPDATE billing_dailyusage SET units = units + 1 WHERE day = '2026-02-02'", "14401 kept, 14400 rated"),
    ("DELETE FROM billing_daytotal WHERE day = '2026-02-02'", "lab on 2026-02-02"),
    (
        "DELETE FROM billing_periodtopjob WHERE record_id IN (SELECT id FROM clusters_usagerecord WHERE job_id = '2')",
        "of its most expensive 1 missing",
    ),
]
TABLES = (
    "clusters_usagerecord",
    "billing_ratedusage",
    "billing_ratedjob",
    "billing_dailyusage",
    "billing_daytotal",
)


def behind_its_back(statement: str) -> None:
    """As the owner of the tables, who can switch off whatever they tell."""
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in (*TABLES, "billing_periodtopjob"):
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        owner.execute(statement)
        for table in (*TABLES, "billing_periodtopjob"):
            owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


@pytest.mark.parametrize(("statement", "place"), MADE_UP)
def test_what_is_changed_with_triggers_off_is_found_in_as_many_nights_as_months(
    lab: Tenant, statement: str, place: str
) -> None:
    behind_its_back(statement)
    assert checks.prove(moment=LATER).recomputed == []  # nothing says that anything was written
    assert not checks.prove(full=True).holds
    nights = [months.prove_next(moment=LATER + timedelta(days=night)) for night in (1, 2, 3)]
    found = {proof.month: proof.broken for proof in nights if proof}
    assert any(place in text for text in found[FEBRUARY]), found
    assert (found[JANUARY], found[MARCH]) == ([], [])
    proof = checks.prove(moment=LATER + timedelta(days=4))
    assert (proof.holds, proof.recomputed) == (False, [FEBRUARY])  # a month that is broken does not stand
    assert any(place in text for text in MonthProof.objects.get(month=FEBRUARY).broken)


def test_what_is_mended_holds_again(lab: Tenant) -> None:
    behind_its_back("UPDATE clusters_usagerecord SET gpus = 5 WHERE job_id = '2'")
    assert not checks.prove(full=True, moment=LATER).holds
    behind_its_back("UPDATE clusters_usagerecord SET gpus = 4 WHERE job_id = '2'")
    assert recomputed() == [FEBRUARY]
    assert recomputed() == []


def test_a_proof_of_other_statements_does_not_stand(lab: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "CODE", "another")
    assert recomputed() == [JANUARY, FEBRUARY, MARCH]


def test_a_proof_that_nobody_keeps_writes_nothing(lab: Tenant) -> None:
    ingest(a_cluster(), a_month(1, gpus=3))

    def rows() -> list[object]:
        return [list(model.objects.order_by("pk").values()) for model in (MonthProof, MonthSum, ProofMark)]

    before = rows()
    assert checks.prove().recomputed == [JANUARY]
    assert rows() == before


def test_marks_do_not_pile_up(lab: Tenant) -> None:
    for gpus in (1, 2, 3):
        ingest(a_cluster(), a_month(2, gpus=gpus))
        connection.cursor().execute("SELECT set_config('app.proof_marks', '', true)")  # as a commit would
    assert ProofMark.objects.count() == 3
    months.prove_month(JANUARY, moment=LATER)
    assert list(ProofMark.objects.values_list("month", flat=True)) == [FEBRUARY]
    assert recomputed() == [FEBRUARY]
    assert not ProofMark.objects.exists()


def test_periods_of_other_zones_and_days_are_proved_by_the_month_too(lab: Tenant) -> None:
    """Periods from the 15th on, in Kolkata: what is kept of one lies in two UTC months, of the first in January too."""
    cluster = a_cluster()
    plan = a_plan("rupees", prices=[("gpu-hour", {}, "1.00", LONG_AGO)])
    a_tenant("pune", plan=plan, accounts=[(cluster, "india")], timezone="Asia/Kolkata", anchor_day=15)
    for day in ("2026-02-14 18:00", "2026-02-28 17:00", "2026-03-14 19:00"):
        started = at(day)
        ingest(
            cluster,
            a_job(account="india", started=day, ended=f"{started + timedelta(hours=3):%Y-%m-%d %H:%M}"),
        )
    assert recomputed() == [JANUARY, FEBRUARY, MARCH]
    assert recomputed() == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_dailyusage SET units = units + 1 WHERE day = '2026-03-01'")
    assert not checks.prove().holds


def test_the_next_close_after_a_proof_has_all_of_a_large_story_agree(lab: Tenant) -> None:
    cluster = a_cluster()
    cluster.complete_through = at("2026-06-01")
    cluster.save()
    for turn, change in enumerate(CHANGES):
        change(lab)
        outbox.drain()
        prove()
        close(f"2026-0{4 + turn % 2}", lab)
        prove()


CHANGES: list[Callable[[Tenant], object]] = [
    lambda lab: ingest(a_cluster(), a_job(job_id="4", started="2026-04-02 10:00", ended="2026-05-01 10:00")),
    lambda lab: ingest(a_cluster(), a_month(3, gpus=1), a_month(1, gpus=8)),
    lambda lab: plans.correct_price(price=Price.objects.get(), model=PerUnit(Decimal(1)), reason="Agreed."),
]


def test_a_proof_each_day_takes_no_month_its_turn_at_night(lab: Tenant) -> None:
    """Op proves by a timer after midnight, and each day something is used: the nights come round all the same."""
    behind_its_back("UPDATE clusters_usagerecord SET gpus = 5 WHERE job_id = '2'")
    broken: list[str] = []
    for day in range(1, 5):
        used = a_job(job_id=f"d{day}", started=f"2026-04-0{day} 10:00", ended=f"2026-04-0{day} 11:00")
        ingest(a_cluster(), used)
        checks.prove(moment=LATER + timedelta(days=day))
        night = months.prove_next(moment=LATER + timedelta(days=day, minutes=30))
        broken += night.broken if night is not None else []
    assert broken


def test_a_month_in_which_something_is_broken_takes_no_other_its_proof(
    lab: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_daytotal SET units = units + 1 WHERE day = '2026-02-02'")
    monkeypatch.setattr(months, "CODE", "of another release")

    checks.prove(moment=LATER + timedelta(days=1))

    assert checks.prove().recomputed == [FEBRUARY]


def test_a_detached_month_takes_no_other_its_proof(lab: Tenant) -> None:
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("billing_ratedjob", "clusters_usagerecord"):
            owner.execute(f"ALTER TABLE {table} DETACH PARTITION {table}_2026_01")

    checks.prove(full=True, moment=LATER + timedelta(days=1))

    assert checks.prove().recomputed == [JANUARY]


def test_records_that_are_deleted_behind_its_back_are_told_though_every_sum_closes(lab: Tenant) -> None:
    """Nobody owns the account, so nothing else knows of the record."""
    ingest(
        a_cluster(),
        a_job(job_id="of nobody", account="nobody", started="2026-02-03 10:00", ended="2026-02-03 11:00"),
    )
    checks.prove(moment=LATER)
    behind_its_back("DELETE FROM clusters_usagerecord WHERE job_id = 'of nobody'")

    for proof in (checks.prove(full=True, moment=LATER + timedelta(days=1)), checks.prove(full=True)):
        (broken,) = [check for check in proof.checks if check.broken]
        assert broken == checks.Check(checks.LOST, ["2026-02: 1 of 2 usage records are gone"])
        assert not proof.holds
