"""A day that no page could count on from is refused where it is entered, with the years that there are."""

from __future__ import annotations

import pytest
from django.test import Client

from billing.models import PlanVersion
from clusters.models import Account, Cluster, Connection, DeclaredNode
from portal.config_file.drafts import one_plan
from portal.config_file.toml_table import ConfigError
from portal.core.tenants.models import Ownership
from tests import builders
from tests.builders import at
from tests.schedulers import a_connection
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

YEARS = "Enter the day like 2026-03-01, in the years 1971 to 8999."
PLAN = """
[[plan]]
name = "for-ever"
currency = "USD"
charges = ["gpu"]
from = 2030-01-01

[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
until = 9999-12-31
"""


@pytest.fixture
def op() -> Client:
    return signed_in(builders.an_operator())


def posted(op: Client, path: str, **form: object) -> str:
    return words(op.post(path, form, follow=True).content.decode())


@pytest.mark.parametrize("day", ["0001-01-01", "1970-12-31", "9000-01-01", "9999-12-31"])
def test_a_node_is_declared_from_a_day_that_every_zone_has(op: Client, day: str) -> None:
    builders.a_cluster("h3", timezone="Europe/Berlin", complete_through="2026-04-20")
    form = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 0, "act": "declare"}
    node = {"name": "n1", "gpu_model": "h100", "gpus": "4", "state": "up", "since": day}
    node_form = form | {f"form-0-{name}": value for name, value in node.items()}
    assert YEARS in posted(op, "/operator/clusters/h3/nodes/", **node_form)
    assert not DeclaredNode.objects.exists()
    assert op.get("/operator/").status_code == 200


@pytest.mark.parametrize("end", ["9999-12-31", "0001-01-01"])
def test_an_account_is_owned_until_a_day_that_every_zone_has(op: Client, end: str) -> None:
    account = Account.objects.create(cluster=builders.a_cluster(), name="vision")
    lab = builders.a_tenant(timezone="Europe/Berlin")
    form = {"account": account.pk, "tenant": lab.pk, "until_0": end, "until_1": "23:59:59"}
    assert YEARS in posted(op, "/admin/tenants/ownership/add/", **form)
    assert not Ownership.objects.exists()


def test_the_page_of_a_tenant_that_a_file_gave_an_account_for_ever_opens(op: Client) -> None:
    lab = builders.a_tenant(timezone="Europe/Berlin")
    builders.own(lab, builders.a_cluster(), "vision", until="9999-12-31 23:59:59")
    assert "31 Dec 9999, 23:59" in words(op.get(f"/operator/tenants/{lab.slug}/").content.decode())


def test_the_rate_of_a_tax_holds_from_a_day_in_range(op: Client) -> None:
    rate = {"country": "AT", "category": "standard", "rate": "20", "since": "9999-12-31"}
    assert YEARS in posted(op, "/admin/billing/taxrate/add/", **rate)


@pytest.mark.parametrize("place", ["\nfrom = 2030-01-01", "\nuntil = 9999-12-31"])
def test_neither_a_plan_nor_a_price_begins_on_the_last_day_there_is(op: Client, place: str) -> None:
    draft = PLAN.replace(place, "\nfrom = 9999-12-31", 1)
    with pytest.raises(ConfigError, match="from is 9999-12-31; write a day up to the year 8999"):
        one_plan(draft)
    for act in ("preview", "publish"):
        text = posted(op, "/operator/plan-editor/", text=draft, act=act)
        assert "from is 9999-12-31; write a day up to the year 8999." in text
    assert not PlanVersion.objects.exists()


def test_a_price_may_end_on_the_last_day_there_is(op: Client) -> None:
    one_plan(PLAN)
    plan = builders.a_plan("for-ever")
    plan.versions.get().prices.update(valid_until="9999-12-31")
    for path in ("/operator/plans/", "/operator/plans/for-ever/", "/operator/plan-editor/?plan=for-ever"):
        assert op.get(path).status_code == 200, path


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        ("0001-01-01 00:00", YEARS),
        ("2099-01-01 00:00", "This is in the future: enter when the first usage was."),
    ],
)
def test_the_first_usage_of_a_cluster_was_on_a_day_that_there_was(
    op: Client, first: str, sentence: str
) -> None:
    row = a_connection()
    form = {"base_url": row.base_url, "user": row.user, "every": "300", "look_back": "48", "enabled": "on"}
    path = f"/operator/clusters/{Cluster.objects.get().name}/connection/"
    assert sentence in posted(op, path, **form, first_usage_from=first)
    assert Connection.objects.get().first_usage_from == at("2026-03-01")
    posted(op, path, **form, first_usage_from="2026-01-01 00:00")
    assert Connection.objects.get().first_usage_from == at("2026-01-01")
