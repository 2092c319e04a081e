"""The administration's start page: tables by task, each group with what it is for and where its daily work is done."""

from __future__ import annotations

from collections import Counter

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from portal.admin_groups import GROUPS
from portal.core.tenants.models import OperatorRole, User
from tests import builders
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db


def start_page(role: OperatorRole = OperatorRole.ADMIN) -> tuple[Client, str]:
    person = User.objects.create_user("op@cluster.example", builders.PASSWORD, operator_role=role)
    client = signed_in(person)
    answer = client.get(reverse("admin:index"))
    assert answer.status_code == 200
    return client, answer.content.decode()


def test_every_table_stands_in_one_group() -> None:
    admin.autodiscover()
    grouped = Counter(table for group in GROUPS for table in group.tables)
    assert grouped == Counter(model._meta.label for model in admin.site._registry)


def test_the_start_page_says_what_each_group_is_for_and_leads_to_the_daily_work() -> None:
    client, text = start_page()
    headings = [text.index(f'<h2 id="{group.key}">') for group in GROUPS]
    assert headings == sorted(headings)
    for group in GROUPS:
        assert group.title in text
        assert group.purpose in text
        for name, title in group.pages:
            assert f'<a href="{reverse(name)}">{title}</a>' in text
            assert client.get(reverse(name)).status_code == 200, name


def test_a_group_of_which_somebody_may_see_nothing_is_left_out() -> None:
    _, text = start_page(OperatorRole.CLUSTER)
    assert '<h2 id="clusters">' in text
    assert '<h2 id="history">' not in text


def test_a_row_leads_back_to_its_table_and_group() -> None:
    client, _ = start_page()
    tenant = builders.a_tenant("vision-lab")
    text = client.get(reverse("admin:tenants_tenant_change", args=[tenant.pk])).content.decode()
    crumbs = " ".join(text.partition('<div class="breadcrumbs">')[2].partition("</div>")[0].split())
    assert crumbs == (
        '<a href="/admin/">Home</a> &rsaquo; <a href="/admin/#people">Tenants and people</a> &rsaquo; '
        '<a href="/admin/tenants/tenant/">Tenants</a> &rsaquo; Vision Lab'
    )


def test_an_application_is_no_page_of_its_own() -> None:
    client, _ = start_page()
    assert client.get("/admin/billing/")["Location"] == "/admin/"
