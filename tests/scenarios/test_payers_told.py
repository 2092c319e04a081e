"""What quotes, evidence, overviews, files and leaving say of a tenant for whom another one pays."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from django.db import DatabaseError, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.catalog import billing_periods, third_party_payers, version_terms
from billing.catalog.third_party_payers import PayerError
from billing.documents import line_jobs
from billing.invoicing import close_inputs, offboarding, statements
from billing.invoicing.statements import MixedCurrenciesError, Statement
from billing.models import Archive, BillingPeriod, Invoice, Payer, PlanVersion
from billing.queries import accrued_charges, line_usage, spending
from billing.rules.meters import PerUnit
from billing.simulation import quotes, what_if
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import configuring_terms
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.evidence import agrees, bundle, files_of
from tests.on_terms import used
from tests.paying import pays
from tests.stories import close, closed, hours, invoice_of, lines_of, printed, prove, seconds, total
from tests.terms import GRADUATED, TWO_DOLLARS, a_version
from tests.tiers import examples

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


@pytest.fixture
def standard() -> PlanVersion:
    return a_version(TWO_DOLLARS)


@pytest.fixture
def physics(standard: PlanVersion, cluster: Cluster) -> Tenant:
    """The faculty, which has jobs of its own."""
    return a_tenant("physics", name="Physics", plan=standard.plan, accounts=[(cluster, "physics")])


@pytest.fixture
def vision(standard: PlanVersion, cluster: Cluster) -> Tenant:
    return a_tenant("vision-lab", plan=standard.plan, accounts=[(cluster, "vision")])


def test_a_quote_is_by_the_tiers_that_hold_for_who_pays_then(cluster: Cluster, physics: Tenant) -> None:
    version = a_version(GRADUATED, name="steps")
    vision = a_tenant(plan=version.plan, accounts=[(cluster, "vision")])
    used(cluster, 100, day="2026-04-05")  # the first tier is full
    pays(physics, vision, "2026-04-16")
    job = a_job(gpus=10, started="2026-04-15 23:00", ended="2026-04-16 01:00")

    estimate = quotes.quote(tenant=vision, cluster="gpu1", job=job, now=at("2026-04-10"))

    assert [amount.text for amount in estimate.total] == [
        "55.00"
    ]  # ten hours at 2.50, and ten at 3.00 for another to pay
    ingest(cluster, job)
    close("2026-04")
    assert (total(invoice_of(vision, "2026-04")), total(invoice_of(physics, "2026-04"))) == (
        "325.00",
        "30.00",
    )


def test_a_plan_tried_on_the_past_is_tried_on_all_that_was_used(
    cluster: Cluster, physics: Tenant, vision: Tenant
) -> None:
    pays(physics, vision, "2026-03-16")
    used(cluster, 5, day="2026-03-10")
    used(cluster, 7, day="2026-03-20")

    def dearer(name: str) -> None:
        a_version(PerUnit(Decimal("3.00")), name=name)

    (tried,) = what_if.simulate_plan(
        tenants=[vision],
        months=((2026, 3), (2026, 3)),
        draft=dearer,
    )

    assert [(row.now.text, row.tried.text) for row in tried.rows] == [("24.00", "36.00")]  # type: ignore[union-attr]


def test_the_evidence_of_a_payers_invoice_has_sums_of_others_and_no_jobs(
    cluster: Cluster, physics: Tenant, tmp_path: Path
) -> None:
    version = a_version(GRADUATED, name="steps", allowance="30")
    version_terms.set_commitment(version=version, amount=Decimal(600), overage_factor=Decimal("1.5"))
    for slug in ("lab-a", "lab-b"):
        child = a_tenant(slug, plan=version.plan, accounts=[(cluster, slug)])
        pays(physics, child, "2026-03-16")
        used(cluster, 130, slug, job_id=f"secret-{slug}")
        used(cluster, 10, slug, day="2026-03-05")
    used(cluster, 4, "physics", job_id="own-job")
    close("2026-03")
    invoice = invoice_of(physics, "2026-03")

    content = bundle(invoice)
    assert "2 of the lines were used by other tenants, whose jobs are told to them alone" in agrees(
        content, tmp_path
    )
    usage = files_of(content)["usage.csv"].decode()
    assert "own-job" in usage
    assert "secret" not in usage
    rows = b"".join(line_usage.as_csv(invoice, lines_of(invoice))).decode()
    assert "own-job" in rows
    assert "secret" not in rows
    assert "Lab A: lab-a" in rows
    assert [len(list(line_jobs.jobs_of(line))) for line in lines_of(invoice) if line.seconds_num] == [
        1,
        1,
        1,
    ]
    agrees(bundle(invoice_of(child, "2026-03")), tmp_path)
    prove()


def test_who_uses_and_who_pays_are_told_together_after_late_use_of_a_month_that_both_paid(
    cluster: Cluster, physics: Tenant
) -> None:
    version = a_version(GRADUATED, name="steps")
    vision = a_tenant(plan=version.plan, accounts=[(cluster, "vision")])
    pays(physics, vision, "2026-03-16")
    used(cluster, 3, day="2026-03-10")
    used(cluster, 4, day="2026-03-20")
    close("2026-03")
    ingest(cluster, a_job(started="2026-03-25 10:00", ended="2026-03-25 12:00"))  # known late, for physics
    used(cluster, 1, day="2026-04-20")

    spent = spending.spending(moment=at("2026-04-25"))
    april = billing_periods.periods_starting_in([physics, vision], year=2026, month=4)
    both = statements.make_statements([*april.values()], close_inputs.load_rated_periods([*april.values()]))

    assert [(amount.tenant, amount.amount.text) for amount in spent] == [("vision-lab", "3.00")]
    assert _lines(both[vision.pk]) == []
    assert _lines(both[physics.pk]) == ["3.00", "6.00"]
    close("2026-04")
    assert printed(invoice_of(physics, "2026-04")) == [
        ("2026-04", "Vision Lab: vision", "1", "3.00"),
        ("2026-03", "Vision Lab: vision", "2", "6.00"),
    ]


def test_who_uses_and_who_pays_are_told_together_where_their_months_end_apart(
    cluster: Cluster, standard: PlanVersion
) -> None:
    physics = a_tenant("physics", plan=standard.plan, timezone="Europe/Berlin")
    vision = a_tenant(plan=standard.plan, timezone="America/Los_Angeles", accounts=[(cluster, "vision")])
    pays(physics, vision, "2026-03-16")
    used(cluster, 3, day="2026-03-10")
    used(cluster, 4, day="2026-03-20")
    used(cluster, 1, day="2026-04-20")
    april = billing_periods.periods_starting_in([physics, vision], year=2026, month=4)

    both = statements.make_statements([*april.values()], close_inputs.load_rated_periods([*april.values()]))

    assert _lines(both[vision.pk]) == ["6.00"]  # of March, as it was not closed
    assert _lines(both[physics.pk]) == ["8.00"]  # its April ends before that of Los Angeles


def _lines(statement: Statement | MixedCurrenciesError) -> list[str]:
    """The amounts of what the tenant used itself, and behind them of what it pays for."""
    assert isinstance(statement, Statement)
    return [line.amount.text for charges in (statement, *statement.paid) for line in charges.lines]


def test_what_has_accrued_says_who_pays(cluster: Cluster, physics: Tenant, vision: Tenant) -> None:
    pays(physics, vision, "2026-03-16")
    used(cluster, 5, day="2026-03-10")
    used(cluster, 7, day="2026-03-20")
    used(cluster, 1, "physics")
    march = {period.tenant_id: period for period in BillingPeriod.objects.filter(start=at("2026-03-01"))}

    mine = accrued_charges.accrued(tenant=vision, period=march[vision.pk])
    theirs = accrued_charges.accrued(tenant=physics, period=march[physics.pk])

    assert mine is not None
    assert theirs is not None
    assert [amount.text for amount in mine.sums] == ["24.00"]
    assert [(name, amount.text) for name, amount in mine.extras] == [("Paid by Physics", "-14.00")]
    assert [amount.text for amount in mine.due] == ["10.00"]
    assert [amount.text for amount in theirs.sums] == ["2.00"]
    assert [(name, amount.text) for name, amount in theirs.extras] == [("Used by Vision Lab", "14.00")]
    assert [(row.user, row.project, row.gpu_seconds, row.amount.text) for row in theirs.paid] == [
        ("Vision Lab", "vision", hours(7), "14.00")
    ]
    assert [amount.text for amount in theirs.due] == ["16.00"]
    assert accrued_charges.accrued_by_tenant(march.values()) == {
        vision.pk: mine.sums,
        physics.pk: theirs.sums,
    }
    close("2026-03")
    after = accrued_charges.accrued(tenant=physics, period=march[physics.pk])
    assert after is not None
    assert [payment.amount.text for payment in after.paid] == ["14.00"]


def test_whoever_pays_for_others_cannot_leave(physics: Tenant, vision: Tenant) -> None:
    row = pays(physics, vision, "2026-04-01")
    blockers = list(offboarding.find_obstacles(physics, moment=at("2026-05-10")))
    assert "It pays for vision-lab: end that, or have another tenant pay." in blockers
    third_party_payers.end_payer(row=row, on=date(2026, 5, 1))
    assert not any(
        "pays for" in find_obstacle
        for find_obstacle in offboarding.find_obstacles(physics, moment=at("2026-05-10"))
    )


def test_whoever_has_left_does_not_pay_again_by_another_last_day(physics: Tenant, vision: Tenant) -> None:
    row = pays(physics, vision, "2026-04-01", "2026-06-01")
    Archive.objects.create(tenant=physics, at=at("2026-06-02"), by="Op", reason="Contract ended")
    with pytest.raises(PayerError, match="physics has left and is archived"):
        third_party_payers.end_payer(row=row, on=date(2027, 1, 1))
    row.refresh_from_db()
    assert row.until == date(2026, 6, 1)
    third_party_payers.end_payer(row=row, on=date(2026, 5, 1))  # sooner, it may end
    row.refresh_from_db()
    assert row.until == date(2026, 5, 1)


@pytest.mark.parametrize("gone", ["physics", "vision-lab"])
@pytest.mark.parametrize("until", [date(2026, 6, 2), None])
def test_no_statement_draws_in_who_has_left(
    physics: Tenant, vision: Tenant, gone: str, until: date | None
) -> None:
    row = pays(physics, vision, "2026-04-01", "2026-06-01")
    left = Tenant.objects.get(slug=gone)
    Archive.objects.create(tenant=left, at=at("2026-06-02"), by="Op", reason="Contract ended")
    with (
        pytest.raises(DatabaseError, match="Whoever has left and is archived pays for nobody"),
        transaction.atomic(),
    ):
        Payer.objects.filter(pk=row.pk).update(until=until)
    with (
        pytest.raises(DatabaseError, match="Whoever has left and is archived pays for nobody"),
        transaction.atomic(),
    ):
        Payer.objects.create(payer=physics, tenant=vision, since=date(2026, 7, 1))
    Payer.objects.filter(pk=row.pk).update(until=date(2026, 5, 1))
    assert Payer.objects.get().until == date(2026, 5, 1)


def test_a_plan_that_is_paid_by_wallet_stays_with_the_childs_wallet(
    cluster: Cluster, physics: Tenant
) -> None:
    plan = a_plan("prepaid", settles="wallet")
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    pays(physics, vision, "2026-03-01")
    used(cluster, 5)
    close("2026-03")
    assert not Invoice.objects.exists()
    prove()


SITE = """
[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 2017-01-01
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
[[tenant]]
slug = "physics"
name = "Physics"
plan = "standard"
[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
payer = "physics"
payer_from = 2026-04-01
"""


def test_a_file_says_who_pays_and_until_when(cluster: Cluster) -> None:
    assert "physics pays for vision-lab: new (since 2026-04-01)" in configuring_terms.apply(SITE)
    assert configuring_terms.apply(SITE) == ["Nothing to change."]
    own(Tenant.objects.get(slug="vision-lab"), cluster, "vision")
    used(cluster, 3, day="2026-04-20")
    ended = SITE.replace("payer_from = 2026-04-01", "payer_until = 2026-04-16")

    assert "physics pays for vision-lab: until nothing -> 2026-04-16" in configuring_terms.apply(ended)
    assert seconds(Tenant.objects.get(slug="vision-lab")) == hours(3)
    close("2026-04", Tenant.objects.get(slug="vision-lab"))
    assert total(invoice_of(Tenant.objects.get(slug="vision-lab"), "2026-04")) == "6.00"
    for wrong, sentence in (
        ('payer = "nobody"', "payer is 'nobody', which neither the file nor the database has."),
        ('payer = "vision-lab"', "vision-lab pays for itself where nobody else does"),
    ):
        assert any(
            sentence in error for error in configuring_terms.refused(SITE.replace('payer = "physics"', wrong))
        )
    itself = SITE.replace('payer = "physics"\npayer_from = 2026-04-01', 'payer = ""\npayer_from = 2026-04-01')
    assert "physics pays for vision-lab: until 2026-04-16 -> 2026-04-01" in configuring_terms.apply(itself)


def test_a_file_has_a_tenant_pay_for_itself_from_a_day_on_whoever_pays_then_or_later() -> None:
    """Physics pays until March, and the department from then on; from February on it is to be the lab itself."""
    department = '[[tenant]]\nslug = "department"\nname = "Department"\nplan = "standard"\n'
    configuring_terms.apply(department + SITE.replace("2026-04-01", "2026-01-01"))
    configuring_terms.apply(
        SITE.replace('"physics"\npayer_from = 2026-04-01', '"department"\npayer_from = 2026-03-01')
    )
    itself = SITE.replace('payer = "physics"\npayer_from = 2026-04-01', 'payer = ""\npayer_from = 2026-02-01')

    changes = configuring_terms.apply(itself)

    assert "physics pays for vision-lab: until 2026-03-01 -> 2026-02-01" in changes
    assert "department pays for vision-lab: until nothing -> 2026-03-01" in changes  # it never does
    assert configuring_terms.apply(itself) == ["Nothing to change."]


@pytest.mark.swept
@settings(
    max_examples=examples(8, 100, short=2),
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    days=st.lists(st.integers(1, 30), min_size=1, max_size=3, unique=True),
    jobs=st.lists(
        st.tuples(st.integers(0, 29 * 86_400), st.integers(1, 6 * 86_400), st.integers(1, 8)),
        min_size=1,
        max_size=6,
    ),
    late=st.booleans(),
)
def test_however_payers_change_nothing_is_lost_between_them(
    days: list[int], jobs: list[tuple[int, int, int]], late: bool
) -> None:
    """Prices per unit: what all of them are billed is what one would be, to the second, and in cents to rounding."""
    with transaction.atomic():
        cluster = a_cluster("gpu9", complete_through="2026-12-01")
        plan = a_plan("per-unit")
        vision = a_tenant("vision-x", plan=plan, accounts=[(cluster, "x")])
        others = [a_tenant(f"payer-{n}", plan=plan) for n in range(len(days))]
        begins = int(at("2026-04-01").timestamp())
        facts = [
            a_job(account="x", gpus=gpus, started=begins + since, ended=begins + since + lasts)
            for since, lasts, gpus in jobs
        ]
        if not late:
            ingest(cluster, *facts)
        for payer, day in zip(others, sorted(days), strict=True):
            pays(payer, vision, f"2026-04-{day:02d}")
        if late:
            ingest(cluster, *facts)
        for month in ("2026-04", "2026-05"):
            for tenant in (vision, *others):
                closed(month, tenant)
        whole = sum(lasts * gpus for _, lasts, gpus in jobs)
        lines = [line for invoice in Invoice.objects.all() for line in lines_of(invoice)]
        billed_seconds = sum(Fraction(int(line.seconds_num), line.seconds_den) for line in lines)
        exact = Fraction(whole * 2, 3600)
        assert billed_seconds == whole
        assert abs(sum(Fraction(line.amount, 100) for line in lines) - exact) <= Fraction(len(lines), 200)
        prove()
        transaction.set_rollback(True)
