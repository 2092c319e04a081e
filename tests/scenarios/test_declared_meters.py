"""Meters that Op declares: tokens and stored bytes come as sums, are priced by plans, and stand on the same invoice."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import IntegrityError, ProgrammingError, transaction

from billing.catalog import line_descriptions, plans, third_party_payers
from billing.catalog.plans import PlanError
from billing.models import Invoice, Plan
from billing.rating import engine, pushed_usage
from billing.rules.meters import PerUnit
from billing.rules.tiers import Graduated, Tier
from clusters import meters
from clusters.meters import MeterError
from clusters.models import Cluster, DeclaredMeter, Quarantined, UsageRevision
from portal.core.tenants.models import Corrections, Tenant
from portal.core.tenants.unassigned import unassigned
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.stories import close, invoice_of, prove
from tests.sums import INPUT, a_gateway, a_sum, a_user_of_tokens, became, lines_of, push, sums_of, tokens


@pytest.fixture
def gateway() -> Cluster:
    return a_gateway()


@pytest.fixture
def vision(gateway: Cluster) -> Tenant:
    return a_user_of_tokens(gateway)


@pytest.mark.django_db
class TestInvoices:
    def test_tokens_stand_on_the_invoice_in_their_own_unit(self, gateway: Cluster, vision: Tenant) -> None:
        sent = push(
            gateway,
            a_sum("1", 12_000_000),
            a_sum("2", "500000", "2026-03-31T22"),
            a_sum("3", 1_000_000, dimensions={"model": "small", "direction": "output"}),
        )
        assert became(sent) == ["accepted"] * 3
        assert sent.warnings == pushed_usage.Warnings()
        prove()
        close("2026-03")
        assert lines_of(vision) == [
            ("LLM tokens, input", Fraction(25, 2), "million tokens", 750),
            ("LLM tokens, output", Fraction(1), "million tokens", 240),
        ]
        prove()
        assert sums_of("llm-tokens") == {
            "unit": "million tokens",
            "allocated": "13.5",
            "billed": "13.5",
            "pending": "0",
            "waived": "0",
            "unassigned": "0",
        }

    def test_gpus_and_tokens_stand_side_by_side(self, gateway: Cluster, vision: Tenant) -> None:
        machines = a_cluster("gpu1", complete_through="2026-04-02 12:00")
        own(vision, machines, "vision")
        ingest(machines, a_job(), as_of="2026-04-02 12:00")
        push(gateway, a_sum("1", 2_000_000))
        close("2026-03")
        assert lines_of(vision) == [
            ("GPU time", Fraction(1), "GPU-hour", 200),
            ("LLM tokens, input", Fraction(2), "million tokens", 120),
        ]
        prove()

    def test_all_of_a_sum_belongs_to_its_start(self, gateway: Cluster, vision: Tenant) -> None:
        """Periods, prices and owners change within the hour of each: its start decides."""
        version = Plan.objects.get(name="ai").versions.get()
        for price in version.prices.filter(dimensions=["direction=input"]):
            plans.end_price(price=price, on=date(2026, 3, 10))
        plans.set_price(
            version=version,
            meter="llm-tokens",
            where=INPUT,
            model=PerUnit(Decimal(1)),
            valid_from=date(2026, 3, 10),
        )
        push(
            gateway,
            a_sum("before the month", 1_000_000, "2026-02-28T20", hours=3),
            a_sum("over its border", 2_000_000, "2026-02-28T23", end="2026-03-01T01:00:00Z"),
            a_sum("at the new price", 4_000_000, "2026-03-10T00"),
            a_sum("at the old price", 8_000_000, "2026-03-09T23", end="2026-03-10T00:30:00Z"),
        )
        close("2026-02")
        close("2026-03")
        assert lines_of(vision, "2026-02") == [("LLM tokens, input", Fraction(3), "million tokens", 180)]
        assert lines_of(vision) == [
            ("LLM tokens, input", Fraction(8), "million tokens", 480),
            ("LLM tokens, input", Fraction(4), "million tokens", 400),
        ]
        prove()

    def test_an_account_changes_hands_within_an_hour(self, gateway: Cluster, vision: Tenant) -> None:
        speech = a_tenant("speech-lab", plan=Plan.objects.get(name="ai"))
        own(speech, gateway, "vision", since="2026-03-02 10:30")
        push(gateway, a_sum("1", 1_000_000), a_sum("2", 3_000_000, "2026-03-02T11"))
        close("2026-03")
        assert [amount for *_, amount in lines_of(vision)] == [60]
        assert [amount for *_, amount in lines_of(speech)] == [180]
        prove()

    def test_a_quantity_with_decimals_is_exact(self, gateway: Cluster, vision: Tenant) -> None:
        meters.declare_meter(
            name="storage", title="Storage", unit="GB-month", counted="GB-hours", per_unit=730, decimals=3
        )
        a_version(("storage", {}, "0.10"))
        hours = [
            a_sum(
                str(hour),
                "1000.001",
                f"2026-03-0{1 + hour // 20}T{hour % 20:02}",
                meter="storage",
                dimensions={},
            )
            for hour in range(73)
        ]
        push(gateway, *hours)
        close("2026-03")
        quantity = Fraction(1_000_001 * 73, 730_000)
        assert lines_of(vision) == [("Storage", quantity, "GB-month", 1000)]  # 100.0001 × 0.10
        assert sums_of("storage")["billed"] == "100.0001"
        prove()

    def test_tiers_and_an_allowance_count_its_units(self, gateway: Cluster, vision: Tenant) -> None:
        tiers = Graduated((Tier(Decimal(10), Decimal("1.00")), Tier(None, Decimal("0.50"))))
        version = a_version()
        plans.set_price(
            version=version, meter="llm-tokens", where={}, model=tiers, valid_from=date(2026, 3, 1)
        )
        push(gateway, a_sum("1", 30_000_000))
        close("2026-03")
        assert lines_of(vision) == [("LLM tokens", Fraction(30), "million tokens", 2000)]
        (line,) = invoice_of(vision, "2026-03").lines.all()
        assert line_descriptions.detail(line, "USD").startswith(
            "graduated: up to 10 at $1.00, above at $0.50"
        )
        prove()

    def test_what_one_tenant_has_of_its_own_and_who_pays(self, gateway: Cluster, vision: Tenant) -> None:
        """A third party pays: the sums stand on its invoice."""
        agency = a_tenant("agency", plan=Plan.objects.get(name="ai"))
        third_party_payers.pay_for(tenant=vision, payer=agency, since=date(2026, 3, 1))
        engine.rate_tenants([vision])
        push(gateway, a_sum("1", 5_000_000))
        close("2026-03")
        assert [amount for *_, amount in lines_of(agency)] == [300]
        prove()


def a_version(*prices: tuple[str, Any, str]) -> Any:
    """The plan from March on, with these prices."""
    plan = Plan.objects.get(name="ai")
    charges = ["gpu", "llm-tokens", *(name for name, _, _ in prices)]
    a_plan(
        "ai",
        prices=[(*price, date(2026, 3, 1)) for price in prices],
        charges=charges,
        effective_from=date(2026, 3, 1),
    )
    return plan.versions.get(effective_from=date(2026, 3, 1))


@pytest.mark.django_db
class TestLater:
    def test_a_revision_before_the_invoice_and_one_after(self, gateway: Cluster, vision: Tenant) -> None:
        push(gateway, a_sum("1", 1_000_000), a_sum("2", 1_000_000))
        assert became(push(gateway, a_sum("1", 3_000_000, time="2026-04-01T01:00:00Z"))) == ["changed"]
        assert became(push(gateway, a_sum("1", 1_000_000))) == ["duplicate"]
        close("2026-03")
        assert lines_of(vision) == [("LLM tokens, input", Fraction(4), "million tokens", 240)]
        push(gateway, a_sum("2", 2_500_000, time="2026-04-02T10:00:00Z"))
        close("2026-04", on="2026-05-03", accept="test")
        april = invoice_of(vision, "2026-04")
        assert [(line.amount, line.correction) for line in april.lines.all()] == [(90, True)]
        prove()
        assert UsageRevision.objects.filter(meter="llm-tokens").count() == 2

    def test_what_is_taken_back_is_credited(self, gateway: Cluster, vision: Tenant) -> None:
        Tenant.objects.update(corrections=Corrections.CREDIT_NOTE)
        push(gateway, a_sum("1", 3_000_000), a_sum("2", 1_000_000))
        close("2026-03")
        push(gateway, a_sum("1", 0, time="2026-04-02T10:00:00Z"))
        close("2026-04", on="2026-05-03", accept="test")
        note = Invoice.objects.get(tenant=vision, kind="credit-note")
        assert note.total == -180
        prove()

    def test_a_revision_that_moves_it_to_another_account_model_and_month(
        self, gateway: Cluster, vision: Tenant
    ) -> None:
        speech = a_tenant("speech-lab", plan=Plan.objects.get(name="ai"), accounts=[(gateway, "speech")])
        push(gateway, a_sum("1", 1_000_000))
        moved = a_sum("1", 1_000_000, "2026-02-02T10", time="2026-04-01T01:00:00Z", account="speech",
                      dimensions={"direction": "output"})  # fmt: skip
        assert became(push(gateway, moved)) == ["changed"]
        prove()
        close("2026-02")
        assert lines_of(speech, "2026-02") == [("LLM tokens, output", Fraction(1), "million tokens", 240)]
        assert not Invoice.objects.filter(tenant=vision).exists()

    def test_a_sum_never_becomes_a_run(self, gateway: Cluster, vision: Tenant) -> None:
        push(gateway, a_sum("1", 1_000_000))
        run = a_sum("1", 0, time="2026-04-01T05:00:00Z") | {"type": "org.clustertab.usage.run"}
        run["data"] = {
            "account": "vision",
            "started": "2026-03-02T10:00:00Z",
            "ended": "2026-03-02T11:00:00Z",
        }
        (answer,) = push(gateway, run).answers
        assert answer.rejection is not None
        assert (answer.rejection.pointer, answer.rejection.row.code) == ("/type", "other-kind")
        prove()

    def test_a_plan_that_charges_it_later_waives_before(self, gateway: Cluster) -> None:
        tokens()
        tenant = a_tenant("vision-lab", plan=a_plan("ai"), accounts=[(gateway, "vision")])
        sent = push(gateway, a_sum("1", 1_000_000))
        assert sent.warnings.waived == {"llm-tokens": 1}
        assert sums_of("llm-tokens")["waived"] == "1"
        a_version(("llm-tokens", {}, "0.60"))
        engine.rate_tenants([tenant])
        assert sums_of("llm-tokens")["pending"] == "1"
        prove()


@pytest.mark.django_db
class TestWhatNobodyPays:
    def test_api_048_an_account_that_nobody_owns_is_unassigned(
        self, gateway: Cluster, vision: Tenant
    ) -> None:
        sent = push(gateway, a_sum("1", 1_000_000, account="nobody's"))
        assert became(sent) == ["accepted"]
        assert sent.warnings.unassigned == {"nobody's": 1}
        assert sums_of("llm-tokens")["unassigned"] == "1"
        (listed,) = unassigned()
        assert (listed.use.jobs, listed.use.quantities) == (0, {"llm-tokens": Fraction(1)})
        own(vision, gateway, "nobody's")
        assert sums_of("llm-tokens")["pending"] == "1"
        close("2026-03")
        assert [amount for *_, amount in lines_of(vision)] == [60]
        prove()

    def test_api_048_what_no_price_covers_is_unpriced_and_blocks_the_close(
        self, gateway: Cluster, vision: Tenant
    ) -> None:
        sent = push(gateway, a_sum("1", 12_500_000, dimensions={"direction": "cached"}))
        assert sent.warnings.unpriced == {"llm-tokens": 1}
        (outcome,) = close("2026-03")
        assert "No price covers 12.50 million tokens (direction=cached)" in str(outcome.blocks)
        assert not Invoice.objects.exists()
        prove()

    def test_without_a_plan_it_is_unpriced(self, gateway: Cluster) -> None:
        tokens()
        a_tenant("vision-lab", accounts=[(gateway, "vision")])
        assert push(gateway, a_sum("1", 1)).warnings.unpriced == {"llm-tokens": 1}
        assert sums_of("llm-tokens")["pending"] == "0.000001"
        prove()

    @pytest.mark.parametrize(
        ("change", "pointer", "code"),
        [
            ({"meter": "tokens"}, "/data/meter", "meter-not-declared"),
            ({"dimensions": {"region": "eu"}}, "/data/dimensions", "dimension-not-declared"),
            ({"dimensions": {"model": "a,b"}}, "/data/dimensions/model", "dimension-text"),
            ({"dimensions": {"model": " large"}}, "/data/dimensions/model", "dimension-text"),
            ({"dimensions": {"model": "x" * 100, "direction": "y" * 100}}, None, ""),
            ({"quantity": "0.5"}, "/data/quantity", "quantity-decimals"),
            ({"quantity": "1.000"}, None, ""),
            ({"quantity": -1}, "/data/quantity", "event-field"),
            ({"quantity": 1.5}, "/data/quantity", "event-field"),
            ({"quantity": "1e6"}, "/data/quantity", "event-field"),
            ({"quantity": 10**12 + 1}, "/data/quantity", "quantity-too-large"),
            ({"quantity": True}, "/data/quantity", "event-field"),
            ({"end": "2026-03-02T10:00:00Z"}, "/data/end", "sum-without-length"),
            ({"end": "2026-03-04T10:00:00Z"}, "/data/start", "sum-too-long"),
            ({"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T01:00:00Z"}, "/data/start", "too-old"),
            (
                {"start": "2026-04-02T12:30:00Z", "end": "2026-04-02T13:30:00Z"},
                "/data/start",
                "from-the-future",
            ),
            (
                {"start": "2026-04-02T11:30:00Z", "end": "2026-04-02T12:30:00Z"},
                "/data/end",
                "from-the-future",
            ),
            ({"gpus": 1}, "/data", "event-field"),
        ],
    )
    def test_api_049_what_cannot_be_is_rejected_with_its_place_and_kept_as_sent(
        self, gateway: Cluster, vision: Tenant, change: dict[str, Any], pointer: str | None, code: str
    ) -> None:
        answers = push(gateway, a_sum("1", 1), a_sum("2", 1, **change)).answers
        rejection = answers[1].rejection
        if pointer is None:
            assert rejection is None
            return
        assert rejection is not None
        assert (rejection.pointer, rejection.row.code) == (pointer, code)
        kept = Quarantined.objects.get(cluster=gateway)
        assert json.loads(kept.raw) == a_sum("2", 1, **change)
        assert answers[0].rejection is None
        prove()

    def test_a_corrected_one_settles_its_quarantine(self, gateway: Cluster, vision: Tenant) -> None:
        push(gateway, a_sum("1", 1, meter="tokens"))
        push(gateway, a_sum("1", 1))
        assert Quarantined.objects.get().resolved_at is not None


@pytest.mark.django_db
class TestDeclaring:
    def test_declared_again_it_is_the_same(self) -> None:
        assert tokens().pk == tokens().pk
        assert tokens(title="Tokens").title == "Tokens"

    def test_its_prices_follow_until_it_is_used(self, gateway: Cluster, vision: Tenant) -> None:
        tokens(unit="1,000,000 tokens")
        assert {price.unit for price in Plan.objects.get().versions.get().prices.exclude(unit="")} == {
            "1,000,000 tokens"
        }
        push(gateway, a_sum("1", 1))
        with pytest.raises(MeterError, match="only dimensions can be added"):
            tokens(unit="thousand tokens", per_unit=1000)
        with pytest.raises(MeterError, match="may have the dimension model: it stays"):
            tokens(unit="1,000,000 tokens", dimensions=["direction"])
        assert tokens(unit="1,000,000 tokens", dimensions=["model", "direction", "region"]).pk
        with pytest.raises(MeterError, match="so it stays"):
            meters.remove_meter(meter=DeclaredMeter.objects.get())
        with pytest.raises(ProgrammingError, match="dimensions may only be added"), transaction.atomic():
            DeclaredMeter.objects.update(per_unit=1)

    def test_a_rejected_sum_does_not_use_it(self, gateway: Cluster, vision: Tenant) -> None:
        push(gateway, a_sum("1", "0.5"))
        assert DeclaredMeter.objects.get().first_used_at is None

    def test_one_that_plans_charge_is_kept(self, vision: Tenant) -> None:
        with pytest.raises(IntegrityError, match="Plans charge this meter"), transaction.atomic():
            meters.remove_meter(meter=DeclaredMeter.objects.get())

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"name": "gpu"}, "meter-built-in"),
            ({"name": "LLM tokens"}, "meter-name"),
            ({"name": "a-"}, "meter-name"),
            ({"title": " "}, "meter-words"),
            ({"unit": "x" * 41}, "meter-words"),
            ({"per_unit": 0}, "meter-parts"),
            ({"decimals": 4}, "meter-parts"),
            ({"dimensions": ["Model"]}, "meter-dimension-name"),
            ({"dimensions": [f"d{number}" for number in range(11)]}, "meter-dimensions"),
            ({"unit_code": "kWh"}, "meter-unit-code"),
        ],
    )
    def test_what_no_meter_can_be(self, change: dict[str, Any], code: str) -> None:
        with pytest.raises(MeterError) as refusal:
            tokens(**change)
        assert refusal.value.code == code

    @pytest.mark.parametrize(
        ("meter", "where", "code"),
        [
            ("llm-token", {}, "meter-unknown"),
            ("gpu-hour", {"dimension": ["model=large"]}, "dimension-of-run"),
            ("llm-tokens", {"gpu_model": ["a100"]}, "selector-of-sum"),
            ("llm-tokens", {"dimension": ["region=eu"]}, "dimension-unknown"),
            ("llm-tokens", {"dimension": ["model"]}, "dimension-unknown"),
        ],
    )
    def test_what_no_price_can_be(
        self, vision: Tenant, meter: str, where: dict[str, list[str]], code: str
    ) -> None:
        version = Plan.objects.get(name="ai").versions.get()
        with pytest.raises(PlanError) as refusal:
            plans.set_price(
                version=version,
                meter=meter,
                where=where,
                model=PerUnit(Decimal(1)),
                valid_from=date(2026, 3, 1),
            )
        assert refusal.value.code == code
