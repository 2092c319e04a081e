"""Ben asks what a job would cost; it then runs as it was quoted, and costs that."""

from __future__ import annotations

import io
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from billing.catalog import plans
from billing.invoicing import statements
from billing.models import PlanVersion, RatedUsage
from billing.rules.hours import Hours, Window
from billing.rules.meters import PerUnit
from billing.simulation.quote_inputs import QuoteInputs
from billing.simulation.quotes import Quote, QuoteError, account_of, cut_job, price_job, quote
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.ops.cli import BadInputError
from tests import builders
from tests.scenarios.real import run
from tests.terms import GRADUATED, TENS, TWO_DOLLARS, VOLUME, a_version
from tests.tiers import examples
from tests.web.test_accrued import PLANS, a_lab, half_of_march

pytestmark = pytest.mark.django_db

NOW = builders.at("2026-03-20")


def quote_of(lab: Tenant, **fields: Any) -> Quote:
    return quote(tenant=lab, cluster="gpu1", job=builders.a_job(**{"account": "", **fields}), now=NOW)


def text(quoted: Quote) -> str:
    (total,) = quoted.total
    return total.text


def test_a_job_costs_what_the_tier_says_that_it_falls_into() -> None:
    cluster, lab = a_lab(PLANS["graduated"]())
    builders.ingest(cluster, builders.a_job(gpus=95, started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    ten = quote_of(lab, gpus=10, started="2026-03-20 10:00", ended="2026-03-20 11:00")
    assert text(ten) == "27.50"  # 5 hours at 3.00 are left, 5 are at 2.50
    (part,) = ten.parts
    assert (part.description, part.seconds) == ("GPU time", Fraction(36_000))
    assert part.scale == "graduated: up to 100 at $3.00, up to 500 at $2.50, above at $2.00"


def test_included_hours_that_are_left_make_a_job_cheaper() -> None:
    cluster, lab = a_lab(a_version(TWO_DOLLARS, allowance="10"))
    builders.ingest(cluster, builders.a_job(gpus=6))
    assert text(quote_of(lab, gpus=3)) == "0.00"
    assert text(quote_of(lab, gpus=10)) == "12.00"  # 4 are left


def test_a_commitment_that_is_not_reached_pays_for_the_job() -> None:
    _, lab = a_lab(PLANS["commitment"]())
    reached = quote_of(lab, gpus=10)
    assert [part.amount.text for part in reached.parts] == ["20.00"]
    assert [(name, amount.text) for name, amount in reached.terms] == [("Minimum commitment", "-20.00")]
    assert text(reached) == "0.00"


def test_a_job_across_a_period_and_a_price_is_cut_as_it_will_be() -> None:
    prices = [
        ("gpu-hour", {}, "2.00", date(2026, 1, 1)),
        ("gpu-hour", {"qos": ["low"]}, "1.00", date(2026, 1, 1)),
    ]
    cluster = builders.a_cluster()
    lab = builders.a_tenant(plan=builders.a_plan(prices=prices), accounts=[(cluster, "vision")])
    job = {"gpus": 4, "started": "2027-03-31 22:00", "ended": "2027-04-01 03:00"}
    assert text(quote_of(lab, **job)) == "40.00"
    assert text(quote_of(lab, **job, qos="low")) == "20.00"
    assert not lab.periods.exists()
    assert not RatedUsage.objects.exists()


def at_night() -> PlanVersion:
    """Half the price from 22:00 to 06:00."""
    version = a_version(TWO_DOLLARS)
    night = Hours((Window(tuple(range(7)), 22 * 3600, 6 * 3600),))
    plans.set_price(
        version=version,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal("1.00")),
        hours=night,
        valid_from=builders.LONG_AGO,
    )
    return version


def test_hours_of_the_night_are_quoted_at_their_price() -> None:
    _, lab = a_lab(at_night())
    evening = quote_of(lab, gpus=3, started="2026-03-20 20:00", ended="2026-03-21 01:30")
    assert text(evening) == "22.50"  # 3 × 2 h at 2.00, and 3 × 3.5 h at 1.00
    assert [part.seconds for part in evening.parts] == [Fraction(21_600), Fraction(37_800)]


def test_slices_count_as_their_part() -> None:
    _, lab = a_lab(PLANS["per unit"]())
    assert text(quote_of(lab, gpus=3, gpu_share=(1, 7), ended="2026-03-02 17:00")) == "6.00"


def test_what_no_price_covers_is_no_zero() -> None:
    version = a_version((TWO_DOLLARS, {"gpu_model": ["h100"]}))
    _, lab = a_lab(version)
    estimate = quote_of(lab, gpus=2)
    assert estimate.unpriced == [("gpu", Fraction(7200))]
    assert estimate.total == []


def test_what_is_not_charged_costs_nothing() -> None:
    _, lab = a_lab(PLANS["per unit"]())
    assert quote_of(lab, gpus=0, cpu_milli=64_000).total == []


def test_eve_cannot_have_a_job_quoted_on_an_account_that_is_not_hers() -> None:
    cluster, _ = a_lab(PLANS["per unit"]())
    eve = builders.a_tenant("speech-lab", accounts=[(cluster, "speech")])
    with pytest.raises(QuoteError, match="does not own the account 'vision' on 'gpu1'"):
        quote_of(eve, account="vision")


def test_op_asks_at_the_shell_and_a_program_reads_it() -> None:
    cluster, _ = a_lab(PLANS["all of it"]())
    half_of_march(cluster)
    estimate = run(
        *("quote", "vision-lab", "--cluster", "gpu1", "--gpus", "8", "--gpu-model", "a100"),
        *("--hours", "12.5", "--at", "2026-03-20"),
    )
    assert estimate["started"] == "2026-03-20T00:00:00Z"
    assert estimate["ended"] == "2026-03-20T12:30:00Z"
    (line,) = estimate["lines"]
    assert (line["quantity"], line["unit"], line["amount"]) == ("100", "GPU-hour", "250.00")
    assert line["price"]["model"] == "graduated"
    # At 405.00 of 1,000.00 the commitment pays: nothing is added but the discount's part, which stays as it is.
    assert estimate["terms"] == [{"name": "Minimum commitment", "currency": "USD", "amount": "-250.00"}]
    assert estimate["total"] == {"USD": "0.00"}
    out = io.StringIO()
    call_command(
        *("quote", "vision-lab", "--cluster", "gpu1", "--gpus", "8", "--hours", "12.5"),
        *("--at", "2026-03-20"),
        stdout=out,
    )
    assert "GPU time, 100 GPU-hours" in out.getvalue()
    assert "graduated: up to 100 at $3.00" in out.getvalue()
    assert "Estimated cost (before tax)" in out.getvalue()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--hours", "-1"], "'-1' is no length of a job: write its hours as a number above 0, up to 8,784."),
        (["--hours", "0"], "'0' is no length of a job: write its hours as a number above 0, up to 8,784."),
        (["--hours", "1", "--gpus", "1.5"], "no whole number of GPUs; slices are told by their share"),
        (["--hours", "1", "--gpu-share", "8/7"], "no part of a GPU: write one like 1/7"),
        (["--hours", "1", "--at", "tomorrow"], "'tomorrow' is not a moment"),
        (["--hours", "1", "--account", "nobody"], "does not own the account 'nobody'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: list[str], sentence: str) -> None:
    a_lab(PLANS["per unit"]())
    with pytest.raises(BadInputError) as refused:
        call_command("quote", "vision-lab", "--cluster", "gpu1", *options, stdout=io.StringIO())
    assert sentence in str(refused.value)


MODELS: dict[str, Any] = PLANS | {
    "nights": at_night,
    "all models": lambda: a_version(
        (GRADUATED, {"gpu_model": ["a100"]}),
        (VOLUME, {"gpu_model": ["h100"]}),
        (TENS, {"qos": ["low"]}),
        allowance="33.5",
    ),
}
START = builders.at("2026-03-20 00:00:01")
JOBS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    gpus=st.integers(0, 40),
    gpu_share=st.sampled_from([(1, 1), (1, 7), (3, 7)]),
    gpu_model=st.sampled_from(["a100", "h100"]),
    qos=st.sampled_from(["", "low"]),
    account=st.sampled_from(["vision", "robots"]),
    after=st.integers(0, 14 * 86_400),  # into April
    lasts=st.integers(1, 3 * 86_400),
)


@pytest.mark.parametrize("plan", MODELS)
@pytest.mark.swept
@settings(max_examples=examples(3, 50, short=1), suppress_health_check=list(HealthCheck))
@given(job=JOBS)
def test_a_job_that_runs_as_it_was_quoted_costs_what_it_was_quoted(plan: str, job: dict[str, Any]) -> None:
    after, lasts = job.pop("after"), job.pop("lasts")
    with transaction.atomic():
        lab = _a_month_in_use(MODELS[plan]())
        begin = int((START + timedelta(seconds=after)).timestamp())
        fact = builders.a_job(**job, started=begin, submitted=begin, ended=begin + lasts)
        quoted = quote(tenant=lab, cluster="gpu1", job=fact, now=NOW)
        before = _owed(lab)
        builders.ingest(Cluster.objects.get(), fact)
        grown = {currency: amount - before.get(currency, 0) for currency, amount in _owed(lab).items()}
        assert {amount.currency: amount.minor for amount in quoted.total if amount.amount} == {
            currency: amount for currency, amount in grown.items() if amount
        }
        transaction.set_rollback(True)


def test_any_length_of_a_job_that_shares_included_hours_is_priced_without_asking_again() -> None:
    """Two models share 33.5 hours, of which 16.5 are left: five and a half of a job with three GPUs."""
    cluster, lab = a_lab(MODELS["all models"]())
    used = {"started": "2026-03-12 10:00", "ended": "2026-03-12 11:00"}
    builders.ingest(
        cluster, builders.a_job(gpus=10, **used), builders.a_job(gpus=7, gpu_model="h100", **used)
    )
    begin, lasts = int(START.timestamp()), 20 * 3600
    job = builders.a_job(account="vision", gpus=3, started=begin, submitted=begin, ended=begin + lasts)
    account = account_of(lab, "gpu1", "vision", START)
    cut = cut_job(job, account=account, now=NOW, inputs=QuoteInputs(lab))
    price_job(cut, lasts)
    with CaptureQueriesContext(connection) as asked:
        prices = [text(price_job(cut, hours * 3600)) for hours in range(1, 20)]
    assert len(asked) == 0
    assert prices == [text(quote_of_length(lab, job, hours * 3600)) for hours in range(1, 20)]
    assert prices[4:7] == ["0.00", "4.50", "13.50"]


def quote_of_length(lab: Tenant, job: UsageFact, seconds: int) -> Quote:
    shorter = replace(job, ended=(job.started or 0) + seconds)
    return quote(tenant=lab, cluster="gpu1", job=shorter, now=NOW)


def _a_month_in_use(version: PlanVersion) -> Tenant:
    cluster, lab = a_lab(version)
    half_of_march(cluster)
    builders.ingest(
        cluster,
        builders.a_job(
            account="robots",
            gpu_model="h100",
            gpus=7,
            started="2026-03-12 10:00:07",
            ended="2026-03-12 11:00",
        ),
        builders.a_job(
            account="robots", qos="low", gpus=3, started="2026-04-02 10:00:03", ended="2026-04-02 11:00"
        ),
    )
    return lab


def _owed(lab: Tenant) -> dict[str, int]:
    """What all that was used until April's end comes to, by the statement of April."""
    april = lab.periods.get(start=builders.at("2026-04-01"))
    statement = statements.make_statement(tenant=lab, period=april)
    sums: dict[str, int] = {}
    for line in statement.lines:
        sums[line.amount.currency] = sums.get(line.amount.currency, 0) + line.amount.minor
    return sums
