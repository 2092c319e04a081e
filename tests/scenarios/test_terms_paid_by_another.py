"""A child has a fee, hours, a commitment and a discount of its own, and its parent pays for it."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from billing.catalog import plans, version_terms
from billing.catalog.plans import PlanError
from billing.models import Allowance, Commitment, Discount, Fee
from tests.builders import LONG_AGO, a_tenant
from tests.on_terms import MARCH, a_lab, billed, used
from tests.paying import pays
from tests.stories import close, prove
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


def test_case_064_what_a_child_has_of_its_own_counts_on_its_parents_invoice_and_is_frozen_by_it() -> None:
    version = a_version(TWO_DOLLARS, allowance="10")
    version_terms.set_fee(version=version, name="Access", amount=Decimal("310.00"))
    version_terms.set_commitment(version=version, amount=Decimal("1.00"))
    cluster, child = a_lab(version)
    parent = a_tenant("physics", name="Physics", plan=version.plan, plan_from=date(2026, 3, 1))
    pays(parent, child, "2026-03-01")
    own: dict[str, Any] = {"version": version, "tenant": child, "valid_from": MARCH}
    owns: list[Allowance | Commitment | Discount | Fee] = [
        version_terms.set_fee(name="Access", amount=Decimal("31.00"), **own),
        version_terms.set_allowance(name="Included hours", hours=Decimal(40), **own),
        version_terms.set_commitment(amount=Decimal("50.00"), **own),
        version_terms.set_discount(name="Welcome", percent=Decimal(10), **own),
    ]
    used(cluster, 50)

    close("2026-03")

    assert billed(parent, "2026-03") == [
        ("2026-03", "Access", "310.00"),  # the parent's own, by the plan
        ("2026-03", "Minimum commitment", "1.00"),
        ("2026-03", "GPU time", "20.00"),  # the child's: 40 of its 50 hours are included
        ("2026-03", "Access", "31.00"),
        ("2026-03", "Minimum commitment", "30.00"),
        ("2026-03", "Welcome", "-8.10"),  # 10 % of 81.00
    ]
    for row in owns:
        with pytest.raises(PlanError, match="can only be ended"):
            version_terms.drop_term(term=row)
        with pytest.raises(DatabaseError, match="The tenant was billed by it"), transaction.atomic():
            row.delete()
    prove()


def test_case_033_what_is_left_lapses_where_another_pays_for_the_month_between() -> None:
    version = a_version(name="rolling")
    free = version_terms.set_allowance(
        version=version, name="Included hours", hours=Decimal(100), rollover=True
    )
    plans.set_price(
        version=version, meter="gpu-hour", where={}, model=TWO_DOLLARS, valid_from=LONG_AGO, allowance=free
    )
    cluster, child = a_lab(version)
    parent = a_tenant("physics", name="Physics")
    pays(parent, child, "2026-04-01", "2026-05-01")
    used(cluster, 40)  # leaves 60, and none of them is for May
    used(cluster, 130, day="2026-04-20")
    used(cluster, 160, day="2026-05-20")

    for month in ("2026-03", "2026-04", "2026-05"):
        close(month)

    assert billed(child, "2026-03") == [("2026-03", "GPU time", "0.00")]
    assert billed(parent, "2026-04") == [("2026-04", "GPU time", "60.00")]  # 30 of 130 hours
    assert billed(child, "2026-05") == [("2026-05", "GPU time", "120.00")]  # 60 of 160 hours
    prove()
