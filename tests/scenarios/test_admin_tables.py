"""Every table of the admin opens, with rows in it, and a form that is saved unchanged changes nothing."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest
from django.contrib import admin
from django.test import Client

from billing.invoicing import month_close
from billing.models import Plan
from billing.reports import operating_costs
from billing.reports.operating_costs import Cost
from billing.rules.money import TOKENS
from portal.core.tenants.models import Tenant, User
from tests import builders
from tests.builders import a_job, at, ingest
from tests.scenarios.test_admin import a_month, messages, page

pytestmark = pytest.mark.django_db


@pytest.fixture
def op(client: Client) -> Client:
    client.force_login(builders.an_operator())
    return client


INLINE_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>\s*\S")
INLINE_STYLE = re.compile(r"<style|<[^>]+\sstyle=")
HANDLER = re.compile(r"<[^>]+\son[a-z]+=")


def test_every_page_opens_and_keeps_to_the_content_security_policy(op: Client) -> None:
    a_month()
    builders.a_person(tenant=Tenant.objects.get())
    opened = 0
    admin.autodiscover()
    for model, model_admin in admin.site._registry.items():
        label = f"{model._meta.app_label}_{model._meta.model_name}"
        urls = [page(label)]
        request = type("Request", (), {"user": User.objects.get(is_staff=True)})()
        if model_admin.has_add_permission(request):
            urls.append(page(label, "add"))
        row = model._default_manager.first()
        if row is not None:
            urls.append(page(label, "change", row.pk))
        for url in urls:
            answer = op.get(url)
            assert answer.status_code == 200, url
            text = answer.content.decode()
            matches = [p.search(text) for p in (INLINE_SCRIPT, INLINE_STYLE, HANDLER)]
            assert [hit.group(0) for hit in matches if hit] == [], url
            opened += 1
    assert opened > 40


def test_what_gpus_cost_is_listed(op: Client) -> None:
    operating_costs.set_costs([Cost("", "v100", "USD", Decimal("0.85"), date(2026, 1, 1))])
    text = op.get(page("billing_operatingcost")).content.decode()
    assert "v100" in text
    assert "every cluster" in text


def test_a_plan_keeps_what_pays_it_when_it_is_saved(op: Client) -> None:
    inline = {f"versions-{name}_FORMS": 0 for name in ("TOTAL", "INITIAL", "MIN_NUM", "MAX_NUM")}
    messages(
        op,
        page("billing_plan", "add"),
        inline | {"name": "prepaid", "currency": "USD", "settles": "wallet-first"},
    )
    builders.a_plan("tokens", TOKENS, settles="wallet")
    for name, settles in (("prepaid", "wallet-first"), ("tokens", "wallet")):
        plan = Plan.objects.get(name=name)
        form = inline | {"currency": plan.currency, "settles": settles}
        (message,) = messages(op, page("billing_plan", "change", plan.pk), form)
        assert "was changed successfully" in message
        plan.refresh_from_db()
        assert plan.settles == settles


def test_why_a_month_was_closed_although_usage_may_be_missing_can_be_read(op: Client) -> None:
    cluster = builders.a_cluster("philly")
    builders.a_seller()
    lab = builders.a_tenant("vision-lab", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-02 10:00", ended="2026-03-02 11:00"), as_of="2026-03-15")
    (done,) = month_close.close_month(
        tenants=[lab], year=2026, month=3, moment=at("2026-04-02"), accept_incomplete="slurmdbd was lost"
    )
    assert done.outcome == "issued"
    listed = op.get(page("billing_closeproof")).content.decode()
    assert "2026-03" in listed
    assert "slurmdbd was lost" in listed
