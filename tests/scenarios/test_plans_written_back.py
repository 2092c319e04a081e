"""A version that is written back as a file says all that it says: nothing is lost where the editor begins with it."""

from __future__ import annotations

from datetime import date

import pytest
from django.db.models import NOT_PROVIDED, Model

from billing.models import Allowance, Commitment, Discount, Fee, PlanQuota, PlanVersion, Price
from portal.config_file.export import plan_text
from tests.configuring_terms import apply

pytestmark = pytest.mark.django_db

# Every column of a price and of each term differs from its default in some row here.
FULL = """
[[cluster]]
name = "gpu1"
kind = "import"
timezone = "UTC"
[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
[[meter]]
name = "storage"
title = "Storage"
unit = "GB-month"
unit_code = "E34"
dimensions = ["class"]
[[plan]]
name = "full"
currency = "EUR"
settles = "wallet-first"
charges = ["cpu", "gpu", "storage"]
from = 2026-01-01
allowance = [
    { name = "Included", hours = "100.5", rollover = true },
    { name = "Included", hours = 200, tenant = "vision-lab", from = 2026-03-01, until = 2026-06-01 },
]
fee = [
    { name = "Access", amount = "9.99", in_advance = true },
    { name = "Access", amount = "1.11", in_advance = false, tenant = "vision-lab", from = 2026-03-01, until = 2027-01-01 },
]
commitment = [
    { amount = "500.01", overage_factor = "1.25" },
    { amount = 5, overage_factor = 2, tenant = "vision-lab", from = 2026-02-01, until = 2026-09-01 },
]
discount = [
    { name = "Spring", percent = "12.5", from = 2026-02-01, until = 2026-07-01 },
    { name = "Volume", amount = 7, tenant = "vision-lab", from = 2026-03-01, until = 2026-04-01 },
]
[[plan.quota]]
name = "net"
measure = "money"
amount = "100.50"
every = "month"
credits = "net"
thresholds = []
forecast_thresholds = ["90%"]
repeat_every = "10.00"
carry_over = 20
carry_overdraft = true
action = "no-submissions"
watch = true
reservation_cap = "40.00"
[[plan.quota]]
name = "part"
measure = "gpu-hours"
amount = 5
every = "rolling"
hours = 24
cluster = "gpu1"
queue = "a"
qos = "low"
gpu_model = "h100"
thresholds = ["80%"]
[[plan.quota]]
name = "grant"
measure = "money"
amount = 0
every = "term"
from = 2026-02-01
until = 2026-12-01
with_paid = true
action = "end-jobs"
grace_minutes = 90
ends_older = true
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.50"
allowance = "Included"
[[plan.price]]
meter = "gpu-hour"
where = { cluster = "gpu1", queue = ["a", "b"], qos = "low", priority_class = "spot", gpu_model = "h100", mig_profile = "1g.10gb", state = "FAILED", use = ["idle", "unknown"] }
hours = [{ days = "mon-fri", from = "22:00", to = "06:00", zone = "cluster" }]
model = "graduated"
tiers = [{ up_to = "10.5", unit_price = "3" }, { unit_price = "2.000001" }]
tenant = "vision-lab"
from = 2026-02-01
until = 2026-12-01
[[plan.price]]
meter = "cpu-core-hour"
model = "package"
package = 10
package_price = "0.75"
[[plan.price]]
meter = "storage"
where = { dimension = ["class=fast", "class=slow"] }
unit_price = "0.02"
"""  # noqa: E501 - a table of one line

MODELS: list[type[Model]] = [Price, Allowance, Fee, Commitment, Discount, PlanQuota]
OWN = {"id", "version", "corrected_through"}  # of the row, not of what it says


def rows(model: type[Model], version: PlanVersion) -> list[dict[str, object]]:
    names = [field.name for field in model._meta.concrete_fields if field.name not in OWN]
    records = model._default_manager.filter(version=version).order_by("pk")
    return [
        {name: str(value) if isinstance(value := getattr(row, name), Model) else value for name in names}
        for row in records
    ]


@pytest.mark.parametrize("model", MODELS)
def test_every_column_comes_back_as_it_was(model: type[Model]) -> None:
    apply(FULL)
    version = PlanVersion.objects.get()
    apply(plan_text(version).replace('name = "full"', 'name = "again"'))
    again = PlanVersion.objects.get(plan__name="again")
    assert rows(model, again) == rows(model, version)
    assert (again.charges, again.plan.settles) == (version.charges, version.plan.settles)


def test_a_new_version_says_its_day_once_so_that_who_moves_it_moves_all_of_it() -> None:
    apply(FULL)
    text = plan_text(PlanVersion.objects.get(), since=date(2026, 3, 1))
    assert text.count("2026-03-01") == 1
    assert "\nfrom = 2026-03-01\n" in text
    moved = text.replace("2026-03-01", "2026-03-15").replace('name = "full"', 'name = "again"')
    apply(moved)
    again = PlanVersion.objects.get(plan__name="again")
    assert {str(price.valid_from) for price in again.prices.all()} == {"2026-03-15"}
    assert {str(row.valid_from) for row in Fee.objects.filter(version=again, tenant__isnull=False)} == {
        "2026-03-15"
    }


@pytest.mark.parametrize("model", MODELS)
def test_every_column_is_told_in_the_example(model: type[Model]) -> None:
    """A column that is new is said in FULL: then the test above says whether it is written back."""
    apply(FULL)
    records = rows(model, PlanVersion.objects.get())
    for field in model._meta.concrete_fields:
        if field.name in OWN:
            continue
        default = None if field.default is NOT_PROVIDED else field.get_default()
        assert any(row[field.name] != default for row in records), f"say {field.name} in FULL"
