"""What each operator role may do: on pages, in the admin, and by keys of the API, from one table."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.db import IntegrityError, transaction
from django.test import Client

from portal.api.keys import KeyRefusedError
from portal.api.scopes import OPERATOR_SCOPES
from portal.core.audit.models import AuditEntry
from portal.core.tenants.access import OPERATOR_RIGHTS, Right
from portal.core.tenants.admin_rights import READ_BY, RIGHT_OF_TABLE
from portal.core.tenants.models import OperatorRole, User
from tests import builders
from tests.api.door import door
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

ACTS = {
    "/operator/close/": Right.CLOSES,
    "/operator/receivables/": Right.PAYMENTS,
    "/operator/bank-transfers/": Right.PAYMENTS,
    "/operator/reconciliation/": Right.PAYMENTS,
    "/operator/sealed-months/": Right.CLOSES,
    "/operator/plan-editor/": Right.PLANS,
    "/operator/clusters/gpu1/": Right.CLUSTERS,
    "/operator/clusters/gpu1/nodes/": Right.JOBS,
    "/operator/api-keys/": Right.READ,
    "/operator/people/": Right.SETTINGS,
    "/operator/tenants/vision-lab/team/": Right.TENANTS,
}
REFUSED = "Your role does not allow this. Nothing was changed."


@pytest.fixture
def house() -> House:
    return a_house(close=False)


def an_operator(role: OperatorRole) -> User:
    return User.objects.create_user(f"{role}@cluster.example", builders.PASSWORD, operator_role=role)


@pytest.mark.parametrize("role", OperatorRole)
def test_a_page_is_seen_by_every_operator_and_acted_on_by_those_with_the_right(
    house: House, role: OperatorRole
) -> None:
    browser = signed_in(an_operator(role))
    for path, right in ACTS.items():
        assert browser.get(path).status_code == 200, path
        answer = browser.post(path, {}, follow=True)
        assert (REFUSED in answer.content.decode()) == (right not in OPERATOR_RIGHTS[role]), path


@pytest.mark.parametrize("role", OperatorRole)
def test_the_admin_has_the_same_table(house: House, role: OperatorRole) -> None:
    person = an_operator(role)
    rights = OPERATOR_RIGHTS[role]
    admin.autodiscover()
    for model in admin.site._registry:
        name = model._meta.label_lower
        app, table = name.split(".")
        assert person.has_perm(f"{app}.view_{table}") == (READ_BY.get(name, Right.READ) in rights), name
        for verb in ("add", "change", "delete"):
            need = RIGHT_OF_TABLE.get(name, Right.SETTINGS)
            assert person.has_perm(f"{app}.{verb}_{table}") == (need in rights), name


def test_support_looks_into_the_admin_and_changes_nothing(house: House) -> None:
    support = signed_in(an_operator(OperatorRole.SUPPORT))
    tenant = f"/admin/tenants/tenant/{house.vision.pk}/change/"
    assert support.get(tenant).status_code == 200
    assert support.post(tenant, {"name": "Mine"}).status_code == 403
    assert support.get("/admin/tenants/user/add/").status_code == 403
    for path in (
        "billing/pendingapproval",
        "billing/invoice",
        "clusters/quarantined",
        "outbox/outboxmessage",
    ):
        page = support.get(f"/admin/{path}/")
        assert page.status_code == 200, path
        assert b'name="action"' not in page.content, path


def test_every_right_is_the_admins_and_tables_that_do_not_exist_have_none() -> None:
    assert OPERATOR_RIGHTS[OperatorRole.ADMIN] == frozenset(Right)
    admin.autodiscover()
    registered = {model._meta.label_lower for model in admin.site._registry} | {
        inline.model._meta.label_lower for site in admin.site._registry.values() for inline in site.inlines
    }
    assert {*RIGHT_OF_TABLE, *READ_BY} <= registered


def test_an_admin_gives_a_role_and_the_history_has_it(house: House) -> None:
    ben = house.ben
    assert signed_in(ben).get("/operator/clusters/").status_code == 404
    form = {"email": ben.email, "is_active": "on", "operator_role": "finance"}
    answer = signed_in(house.op).post(f"/admin/tenants/user/{ben.pk}/change/", form)
    assert answer.status_code == 302, answer.content.decode()
    ben.refresh_from_db()
    assert (ben.operator_role, ben.is_staff, ben.is_superuser) == ("finance", True, False)
    assert signed_in(ben).get("/operator/clusters/").status_code == 200
    entry = AuditEntry.objects.of_table(User).latest("pk")
    assert (entry.before, entry.after, entry.who) == (
        {"operator_role": ""},
        {"operator_role": "finance"},
        house.op.email,
    )
    assert signed_in(ben).post(f"/admin/tenants/user/{ben.pk}/change/", form).status_code == 403


def test_djangos_flags_cannot_say_more_than_the_role(house: House) -> None:
    with transaction.atomic(), pytest.raises(IntegrityError, match="user_flags_follow"):
        User.objects.filter(pk=house.ben.pk).update(is_superuser=True)
    house.ben.is_superuser = True
    house.ben.save()
    assert not house.ben.is_superuser


@pytest.mark.parametrize("role", OperatorRole)
def test_api_017_a_key_of_an_operator_may_what_its_scopes_and_its_makers_role_allow(
    role: OperatorRole,
) -> None:
    person = an_operator(role)
    allowed = [scope for scope, right in OPERATOR_SCOPES.items() if right in OPERATOR_RIGHTS[role]]
    for scope in {*OPERATOR_SCOPES} - {*allowed}:
        with pytest.raises(KeyRefusedError, match=f"does not allow {scope}"):
            door(person, None, scope)
    script = door(person, None, *allowed)
    assert script.reads("/me")["scopes"] == sorted(allowed)
    person.operator_role = OperatorRole.SUPPORT
    person.save()
    support = OPERATOR_RIGHTS[OperatorRole.SUPPORT]
    assert script.reads("/me")["scopes"] == sorted(s for s in allowed if OPERATOR_SCOPES[s] in support)
    person.operator_role = ""
    person.save()
    assert script.get("/me").problem == (401, "unauthenticated")


def test_nobody_is_an_operator_by_default(client: Client) -> None:
    ben = User.objects.create_user("ben@new.example", builders.PASSWORD)
    assert (ben.operator_role, ben.is_staff) == ("", False)
    assert signed_in(ben).get("/admin/").status_code == 302
