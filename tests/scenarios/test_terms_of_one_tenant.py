"""A fee, a commitment, included hours or a discount that Op gives to one tenant alone, for a time."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from billing.catalog import line_descriptions, plans, version_terms
from billing.catalog.plans import PlanError
from billing.models import Allowance, Commitment, Discount, Fee, PlanVersion
from billing.models.terms import Term
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_tenant
from tests.evidence import bundle, verified
from tests.on_terms import MARCH, a_lab, billed, used
from tests.stories import close, closed, invoice_of, lines_of, printed, prove, total
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db

MID_MARCH = date(2026, 3, 17)  # 16 of 31 days have gone
APRIL = date(2026, 4, 1)


def agrees(tenant: Tenant, month: str, at: Path) -> None:
    """Anyone can compute the invoice again from its evidence."""
    code, text = verified(bundle(invoice_of(tenant, month)), at)
    assert code == 0, text


def two_labs(version: PlanVersion) -> tuple[Cluster, Tenant, Tenant]:
    cluster, vision = a_lab(version)
    audio = a_tenant("audio-lab", plan=version.plan, plan_from=MARCH, accounts=[(cluster, "audio")])
    return cluster, vision, audio


# Fees


def with_fee(amount: str = "310.00", *, in_advance: bool = False) -> PlanVersion:
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Platform fee", amount=Decimal(amount), in_advance=in_advance)
    return version


def test_a_fee_of_one_tenant_stands_in_the_place_of_the_plans_by_seconds(tmp_path: Path) -> None:
    version = with_fee()
    _, vision, audio = two_labs(version)
    version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal("155.00"), tenant=vision,
        valid_from=MID_MARCH, valid_until=date(2026, 4, 16),
    )  # fmt: skip
    for month in ("2026-03", "2026-04", "2026-05"):
        close(month)

    assert billed(vision, "2026-03") == [
        ("2026-03", "Platform fee", "160.00"),  # 16 of 31 days of 310.00
        ("2026-03", "Platform fee", "75.00"),  # 15 of 31 days of 155.00
    ]
    assert billed(vision, "2026-04") == [
        ("2026-04", "Platform fee", "155.00"),  # 15 of 30 days
        ("2026-04", "Platform fee", "77.50"),
    ]
    assert billed(vision, "2026-05") == [("2026-05", "Platform fee", "310.00")]
    assert billed(audio, "2026-03") == [("2026-03", "Platform fee", "310.00")]
    assert line_descriptions.detail(lines_of(invoice_of(vision, "2026-03"))[1], "USD") == (
        "$155.00 per period, for 1,296,000 of 2,678,400 of its seconds"
    )
    agrees(vision, "2026-03", tmp_path)
    prove()


def test_a_fee_of_nothing_waives_the_plans_for_one_tenant() -> None:
    version = with_fee()
    cluster, vision, audio = two_labs(version)
    version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal(0), tenant=vision, valid_from=MARCH
    )
    used(cluster, 10)
    close("2026-03")
    assert billed(vision, "2026-03") == [("2026-03", "GPU time", "20.00")]
    assert total(invoice_of(audio, "2026-03")) == "310.00"
    prove()


def test_an_own_fee_can_be_one_that_the_plan_does_not_have() -> None:
    version = a_version(TWO_DOLLARS)
    _, vision, audio = two_labs(version)
    version_terms.set_fee(
        version=version, name="Racks of its own", amount=Decimal("31.00"), tenant=vision, valid_from=MID_MARCH
    )
    close("2026-03")
    assert billed(vision, "2026-03") == [("2026-03", "Racks of its own", "15.00")]
    assert [closing.outcome for closing in close("2026-03", audio)] == ["nothing to bill"]
    prove()


def test_what_an_own_fee_changes_in_a_period_that_was_billed_in_advance_comes_with_the_next_invoice(
    tmp_path: Path,
) -> None:
    version = with_fee("300.00", in_advance=True)
    _, vision = a_lab(version)
    closed("2026-03", vision)  # April's is billed with it
    version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal("150.00"), tenant=vision,
        valid_from=date(2026, 4, 16),
    )  # fmt: skip
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [
        ("2026-04", "Platform fee", "-150.00"),  # the half of April that it does not hold any more
        ("2026-04", "Platform fee", "75.00"),
        ("2026-05", "Platform fee", "150.00"),  # in advance, as the plan's
    ]
    agrees(vision, "2026-04", tmp_path)
    prove()


# Included hours


def test_own_included_hours_count_by_seconds_and_the_evidence_says_so(tmp_path: Path) -> None:
    version = a_version(TWO_DOLLARS, allowance="31")
    cluster, vision, audio = two_labs(version)
    version_terms.set_allowance(
        version=version, name="Included hours", hours=Decimal(62), tenant=vision, valid_from=MID_MARCH
    )
    for account in ("vision", "audio"):
        used(cluster, 100, account)
        used(cluster, 100, account, day="2026-04-20")
    for month in ("2026-03", "2026-04"):
        close(month)

    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "100", "108.00")]  # 16 + 30 free
    assert printed(invoice_of(vision, "2026-04")) == [("2026-04", "vision", "100", "76.00")]
    assert printed(invoice_of(audio, "2026-03")) == [("2026-03", "audio", "100", "138.00")]
    agrees(vision, "2026-03", tmp_path)
    agrees(vision, "2026-04", tmp_path)
    prove()


def test_own_hours_roll_over_as_the_plans_do() -> None:
    version = a_version()
    free = version_terms.set_allowance(
        version=version, name="Included hours", hours=Decimal(31), rollover=True
    )
    plans.set_price(
        version=version, meter="gpu-hour", where={}, model=TWO_DOLLARS, valid_from=MARCH, allowance=free
    )
    cluster, vision = a_lab(version)
    version_terms.set_allowance(
        version=version, name="Included hours", hours=Decimal(62), tenant=vision, valid_from=MARCH,
        valid_until=APRIL,
    )  # fmt: skip
    used(cluster, 12)  # leaves 50
    used(cluster, 100, day="2026-04-20")  # 50 and 31 are free
    for month in ("2026-03", "2026-04"):
        closed(month, vision)
    assert [total(invoice_of(vision, month)) for month in ("2026-03", "2026-04")] == ["0.00", "38.00"]
    prove()


def test_own_hours_are_of_an_allowance_that_the_plan_has() -> None:
    version = a_version(TWO_DOLLARS)
    _, vision = a_lab(version)
    with pytest.raises(PlanError, match="has no allowance 'Included hours' for all"):
        version_terms.set_allowance(
            version=version, name="Included hours", hours=Decimal(5), tenant=vision, valid_from=MARCH
        )


# Commitments


def committed(amount: str, factor: str = "1") -> PlanVersion:
    version = a_version(TWO_DOLLARS)
    version_terms.set_commitment(version=version, amount=Decimal(amount), overage_factor=Decimal(factor))
    return version


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (100, "270.00"),  # 16 of 31 days of 620.00 and 15 of 31 days of 310.00 are 470.00; used for 200.00
        (500, "273.55"),  # 530.00 above: 2 times for 16 of 31 days, once for the others
    ],
)
def test_the_use_of_a_period_is_compared_with_what_both_commitments_come_to(
    hours: int, expected: str, tmp_path: Path
) -> None:
    version = committed("620.00", "2")
    cluster, vision = a_lab(version)
    version_terms.set_commitment(
        version=version, amount=Decimal(310), overage_factor=Decimal(1), tenant=vision, valid_from=MID_MARCH
    )
    used(cluster, hours)
    closed("2026-03", vision)
    assert billed(vision, "2026-03")[1] == ("2026-03", "Minimum commitment", expected)
    assert line_descriptions.detail(lines_of(invoice_of(vision, "2026-03"))[1], "USD") == (
        "at least $620.00 per period; what lies above counts 2 times, for 1,382,400 of 2,678,400 of its seconds; "
        f"at least $310.00 per period, for 1,296,000 of 2,678,400 of its seconds; used for ${hours * 2:,}.00"
    )
    agrees(vision, "2026-03", tmp_path)
    prove()


@pytest.mark.parametrize(("factor", "comes_to"), [(None, []), (Decimal("1.25"), ["200.00"])])
def test_a_commitment_of_nothing_frees_of_the_plans_factor_too(
    factor: Decimal | None, comes_to: list[str]
) -> None:
    """Use of 800.00, where the plan commits to 1,000.00 and counts what lies above 1.5 times."""
    version = a_version(TWO_DOLLARS)
    version_terms.set_commitment(version=version, amount=Decimal(1000), overage_factor=Decimal("1.5"))
    cluster, vision = a_lab(version)
    version_terms.set_commitment(
        version=version, amount=Decimal(0), overage_factor=factor, tenant=vision, valid_from=MARCH
    )
    used(cluster, 400)
    closed("2026-03", vision)
    assert [amount for *_, amount in billed(vision, "2026-03")] == ["800.00", *comes_to]
    # Said again without a factor, as by a file that leaves it out, it is the one that stands.
    version_terms.set_commitment(version=version, amount=Decimal(0), tenant=vision, valid_from=MARCH)


def test_a_commitment_of_nothing_frees_one_tenant_of_it() -> None:
    version = committed("620.00")
    _, vision, audio = two_labs(version)
    version_terms.set_commitment(version=version, amount=Decimal(0), tenant=vision, valid_from=MARCH)
    outcomes = {outcome.tenant: outcome.outcome for outcome in close("2026-03")}
    assert outcomes["vision-lab"] == "nothing to bill"
    assert total(invoice_of(audio, "2026-03")) == "620.00"
    prove()


def test_a_commitment_that_is_to_come_and_is_dropped_changes_nothing_that_was_billed() -> None:
    """700.00 from May on was written first, and is not to be after all; March and April are committed to 500.00."""
    version = a_version(TWO_DOLLARS)
    cluster, vision = a_lab(version)
    own: dict[str, Any] = {"version": version, "tenant": vision}
    coming = version_terms.set_commitment(amount=Decimal(700), valid_from=date(2026, 5, 1), **own)
    version_terms.set_commitment(
        amount=Decimal(500), valid_from=MARCH, valid_until=date(2026, 5, 1), **own
    )  # fmt: skip
    used(cluster, 5)
    used(cluster, 20, day="2026-04-20")
    closed("2026-03", vision)

    version_terms.drop_term(term=coming)
    closed("2026-04", vision)

    assert billed(vision, "2026-03") == [
        ("2026-03", "GPU time", "10.00"),
        ("2026-03", "Minimum commitment", "490.00"),
    ]
    assert billed(vision, "2026-04") == [
        ("2026-04", "GPU time", "40.00"),
        ("2026-04", "Minimum commitment", "460.00"),
    ]
    prove()


# Discounts


def test_an_own_discount_stands_in_the_place_of_the_plans(tmp_path: Path) -> None:
    version = a_version(TWO_DOLLARS)
    version_terms.set_discount(version=version, name="Academic", valid_from=MARCH, percent=Decimal(31))
    cluster, vision, audio = two_labs(version)
    version_terms.set_discount(
        version=version, name="Academic", percent=Decimal(62), tenant=vision, valid_from=MID_MARCH,
        valid_until=APRIL,
    )  # fmt: skip
    for account in ("vision", "audio"):
        used(cluster, 50, account)
    close("2026-03")
    assert billed(vision, "2026-03") == [
        ("2026-03", "GPU time", "100.00"),
        ("2026-03", "Academic", "-16.00"),  # 31 % for 16 of 31 days
        ("2026-03", "Academic", "-25.20"),  # 62 % for 15 of 31 days, of what is left
    ]
    assert total(invoice_of(audio, "2026-03")) == "69.00"
    agrees(vision, "2026-03", tmp_path)
    prove()


def test_a_tenant_can_be_given_no_discount_at_all() -> None:
    version = a_version(TWO_DOLLARS)
    version_terms.set_discount(version=version, name="Academic", valid_from=MARCH, percent=Decimal(31))
    cluster, vision = a_lab(version)
    version_terms.set_discount(
        version=version, name="Academic", percent=Decimal(0), tenant=vision, valid_from=MARCH
    )
    used(cluster, 50)
    closed("2026-03", vision)
    assert total(invoice_of(vision, "2026-03")) == "100.00"


# What was used


def test_what_was_billed_can_only_be_ended() -> None:
    version = with_fee()
    cluster, vision = a_lab(version)
    own = version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal(155), tenant=vision, valid_from=MID_MARCH
    )
    used(cluster, 10)
    version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal("93.00"), tenant=vision, valid_from=MID_MARCH
    )  # a slip of the pen, before it is billed
    closed("2026-03", vision)
    assert billed(vision, "2026-03")[2] == ("2026-03", "Platform fee", "45.00")

    with pytest.raises(PlanError, match="was billed by its own Platform fee, so it can only be ended"):
        version_terms.set_fee(
            version=version, name="Platform fee", amount=Decimal(1), tenant=vision, valid_from=MID_MARCH
        )
    with pytest.raises(PlanError, match="can only be ended"):
        version_terms.drop_term(term=own)
    for change in (lambda: Fee.objects.filter(pk=own.pk).update(amount=1), own.delete):
        with pytest.raises(DatabaseError, match="The tenant was billed by it"), transaction.atomic():
            change()

    version_terms.end_term(term=own, on=date(2026, 4, 16))
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [
        ("2026-04", "Platform fee", "155.00"),
        ("2026-04", "Platform fee", "46.50"),
    ]
    prove()


def test_an_end_in_a_period_that_is_billed_is_corrected() -> None:
    version = with_fee()
    _, vision = a_lab(version)
    own = version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal(0), tenant=vision, valid_from=MID_MARCH
    )
    closed("2026-03", vision)
    version_terms.end_term(term=own, on=date(2026, 3, 27))
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [
        ("2026-04", "Platform fee", "310.00"),
        ("2026-03", "Platform fee", "50.00"),
    ]
    prove()


def test_the_database_refuses_what_was_billed_of_every_kind() -> None:
    version = a_version(TWO_DOLLARS, allowance="1")
    version_terms.set_commitment(version=version, amount=Decimal(500))
    cluster, vision = a_lab(version)
    for_vision: dict[str, Any] = {"version": version, "tenant": vision, "valid_from": MARCH}
    owns: list[Allowance | Commitment | Discount] = [
        version_terms.set_allowance(name="Included hours", hours=Decimal(5), **for_vision),
        version_terms.set_commitment(amount=Decimal(400), **for_vision),
        version_terms.set_discount(name="Welcome", percent=Decimal(10), **for_vision),
    ]
    later = version_terms.set_fee(
        name="Later", amount=Decimal(1), **for_vision | {"valid_from": date(2027, 1, 1)}
    )
    used(cluster, 10)
    closed("2026-03", vision)
    for row in owns:
        with pytest.raises(DatabaseError, match="The tenant was billed by it"), transaction.atomic():
            row.delete()
        with pytest.raises(PlanError, match="can only be ended"):
            version_terms.drop_term(term=row)
    version_terms.drop_term(term=later)
    assert not Fee.objects.exists()


@pytest.mark.parametrize("model", [Allowance, Commitment, Discount, Fee])
def test_two_of_a_tenant_at_one_time_are_refused(
    model: type[Allowance | Commitment | Discount | Fee],
) -> None:
    version = a_version(TWO_DOLLARS, allowance="1")
    vision = a_tenant(plan=version.plan)
    tolds: dict[type[Term], dict[str, Any]] = {
        Allowance: {"name": "Included hours", "hours": Decimal(5)},
        Commitment: {"amount": Decimal(5)},
        Discount: {"name": "Welcome", "percent": Decimal(5)},
        Fee: {"name": "Racks", "amount": Decimal(5)},
    }
    arguments = tolds[model]
    make = getattr(version_terms, f"set_{model.__name__.lower()}")
    first = make(version=version, tenant=vision, valid_from=MARCH, **arguments)
    with pytest.raises(PlanError, match=r"of vision-lab from 2026-04-01 overlaps that from 2026-03-01"):
        make(version=version, tenant=vision, valid_from=APRIL, **arguments)
    first.pk, first.valid_from = None, APRIL
    name = f"tenant_has_one_own_{model.__name__.lower()}_at_a_time"
    with pytest.raises(IntegrityError, match=name), transaction.atomic():
        first.save(force_insert=True)
