"""Op sets the policy of dunning in her file, for everyone and for one tenant, and in the administration."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from django.test import Client

from billing.models import DunningPolicy
from billing.receivables import dunning_policies
from billing.receivables.dunning_policies import Policies, PolicyError
from billing.rules.dunning_defaults import DEFAULTS, Policy
from portal.core.tenants.models import Tenant
from tests import builders
from tests.history import history
from tests.scenarios.configuring import PHILLY, Op

pytestmark = pytest.mark.django_db

SELLER = """
[seller]
name = "Northern Compute GmbH"
[seller.dunning]
from = 2026-01-01
reminders = [5, 15]
suspend = 45
"""


def policy(due_on: date) -> Policy:
    lab = Tenant.objects.get(slug="vision-lab").pk
    return Policies([lab]).of(lab, due_on)


def test_a_policy_of_everyone_and_what_differs_for_one_tenant_with_their_dates(tmp_path: Path) -> None:
    op = Op(tmp_path)
    file = SELLER + PHILLY + "dunning = { from = 2026-03-01, suspend = 0, retries = [2], receipts = true }\n"
    changes = op.applies(file)
    assert any(
        "dunning of everyone from 2026-01-01: new (reminders 5, 15, suspend 45)" in line for line in changes
    )
    assert any("dunning of vision-lab from 2026-03-01: new" in line for line in changes)
    assert op.applies(file) == ["Nothing to change."]
    assert policy(date(2025, 12, 31)) == DEFAULTS
    assert policy(date(2026, 2, 28)) == Policy(reminders=(5, 15), suspend=45)
    assert policy(date(2026, 3, 1)) == Policy(reminders=(5, 15), suspend=0, retries=(2,), receipts=True)

    changed = op.applies(SELLER.replace("suspend = 45", "suspend = 60"))
    assert any(line.endswith("dunning of everyone from 2026-01-01: suspend 45 -> 60") for line in changed)
    policy_for_all = DunningPolicy.objects.get(tenant=None)
    assert history(policy_for_all, "suspend") == [("insert", 45), ("update", 60)]


def test_what_cannot_be_meant_is_refused_in_a_sentence_and_nothing_is_kept(tmp_path: Path) -> None:
    op = Op(tmp_path)
    assert op.is_refused(SELLER.replace("[5, 15]", "[15, 5]")) == [
        "seller: reminders are days after due, each later than the one before: [3, 10, 21]."
    ]
    assert op.is_refused(SELLER.replace("suspend = 45", "suspend = 5")) == [
        "seller: announce is 7 days before a suspension on day 5: make it fewer."
    ]
    assert op.is_refused(SELLER.replace("from = 2026-01-01\n", "")) == [
        "seller, dunning: from is missing; write the day from which on invoices that are due go by it."
    ]
    assert op.is_refused(SELLER.replace("[5, 15]", "[0]")) == [
        "seller, dunning: reminders has to be a list of at most 10 whole numbers from 1 to 3650, such as [3, 10]."
    ]
    assert not DunningPolicy.objects.exists()


def test_op_sets_a_policy_in_the_administration(client: Client) -> None:
    client.force_login(builders.an_operator())
    lab = builders.a_tenant("vision-lab")
    url = "/admin/billing/dunningpolicy/add/"
    form = {"tenant": lab.pk, "since": "2026-03-01", "letters": "unknown", "receipts": "unknown"}
    refused = client.post(url, {**form, "suspend": "5"}).content.decode()
    assert "announce is 7 days before a suspension on day 5: make it fewer." in refused
    assert client.post(url, {**form, "suspend": "30", "reminders": "4,9"}).status_code == 302
    assert policy(date(2026, 3, 1)) == Policy(reminders=(4, 9), suspend=30)


def test_no_version_has_a_tenant_that_is_written_nothing_wait_for_an_announcement(
    tmp_path: Path, client: Client
) -> None:
    lab = builders.a_tenant("vision-lab")
    dunning_policies.set_policy(tenant=lab, since=date(2026, 1, 1), emails=False)
    sentence = (
        "With the policy of vision-lab, for what is due from 2026-06-01 on: e-mails are off, so that nobody is told "
        "of a suspension: set announce to 0 if that is meant."
    )
    assert Op(tmp_path).is_refused(SELLER.replace("2026-01-01", "2026-06-01")) == [f"seller: {sentence}"]
    client.force_login(builders.an_operator())
    form = {"tenant": "", "since": "2026-06-01", "letters": "unknown", "receipts": "unknown", "suspend": "30"}
    page = client.post("/admin/billing/dunningpolicy/add/", form).content.decode()
    assert "With the policy of vision-lab, for what is due from 2026-06-01 on: e-mails are off" in page

    dunning_policies.set_policy(tenant=lab, since=date(2026, 1, 1), announce=0)
    dunning_policies.set_policy(tenant=None, since=date(2026, 6, 1), suspend=30)
    with pytest.raises(PolicyError, match="vision-lab, for what is due from 2026-06-01 on: e-mails are off"):
        dunning_policies.set_policy(tenant=lab, since=date(2026, 1, 1), announce=None)
