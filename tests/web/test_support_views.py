"""Op looks at a tenant as it sees itself: with a reason, for an hour, changing nothing, and Ann can read of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import InternalError, connection
from django.test import Client

from portal.api.models import ApiKey
from portal.core.audit.models import AuditEntry
from portal.core.tenants import support_views
from portal.core.tenants.access import DeniedError
from portal.core.tenants.models import Membership, OperatorRole, SupportView, Tenant, User
from portal.core.tenants.team import TeamError
from portal.web.read_only import read_only
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_access import ACTS, NOT_YET, TENANTS, address

pytestmark = pytest.mark.django_db

LOOK, END = "/operator/tenants/vision-lab/look/", "/operator/look/end/"
BANNER = "You look at Vision Lab as its owner sees it"


begun, house = sharing.fixtures(a_house, "house")


def looks(person: User, reason: str = "ticket 4711") -> Client:
    browser = signed_in(person)
    assert browser.post(LOOK, {"reason": reason}).headers["Location"] == "/t/vision-lab/"
    return browser


def test_op_sees_the_tenants_pages_as_ann_does_with_a_banner(house: House) -> None:
    op = looks(house.op)
    text = op.get("/t/vision-lab/").text
    assert BANNER in text
    assert "/operator/clusters/" not in text
    assert "Speech Lab" not in text
    team = op.get("/t/vision-lab/team/").text
    assert "Invite by e-mail" in team
    assert "Manage as operator" not in team
    assert op.get("/t/vision-lab/history/").status_code == 200


def test_every_page_of_the_tenant_opens_as_for_its_owner(house: House) -> None:
    op = looks(house.op)
    for route in TENANTS:
        if route not in ACTS:
            opened = op.get(address(route, house)).status_code
            assert (route, opened) == (route, NOT_YET.get(route, 200))


def test_nothing_can_be_sent_wherever_it_goes(house: House) -> None:
    op = looks(house.op)
    before = AuditEntry.objects.count()
    posts = [address(route, house) for route in ACTS]
    before = AuditEntry.objects.count()
    operators = ["/operator/people/", "/operator/close/", "/operator/tenants/vision-lab/team/", "/tenants/"]
    for path in (
        *posts,
        *operators,
        f"/admin/tenants/tenant/{house.vision.pk}/change/",
        "/accounts/password/change/",
    ):
        answer = op.post(path, {"act": "remove", "member": Membership.objects.get(user=house.ben).pk})
        assert (path, answer.status_code) == (path, 302)
    assert "only reading is possible" in op.get("/t/vision-lab/").text
    assert AuditEntry.objects.count() == before
    assert not ApiKey.objects.exists()
    for path in ("/t/vision-lab/payment/back/?session=x", "/t/vision-lab/payment/stopped/?session=x"):
        assert op.get(path).status_code == 404


def test_the_database_refuses_what_a_page_would_write(house: House) -> None:
    with pytest.raises(InternalError, match="read-only transaction"), read_only():
        Tenant.objects.filter(pk=house.vision.pk).update(name="Mine")
    with read_only(), connection.cursor() as cursor:
        cursor.execute("SHOW transaction_read_only")
        assert cursor.fetchone() == ("on",)
    Tenant.objects.filter(pk=house.vision.pk).update(name="Ours")  # after it, again


def test_ann_reads_who_looked_when_and_why(house: House) -> None:
    looks(house.op).post(END)
    text = page(house.ann, "/t/vision-lab/history/?table=tenants_supportview")
    assert "op@cluster.example" in text
    assert "ticket 4711" in text
    assert "ended at" in text
    assert "ticket 4711" not in page(house.eve, "/t/speech-lab/history/")


def test_it_needs_a_reason_and_an_operator(house: House) -> None:
    op = signed_in(house.op)
    assert "Say why you look at the tenant" in op.post(LOOK, {"reason": "  "}, follow=True).text
    assert not SupportView.objects.exists()
    for person in (house.ann, house.eve):
        assert signed_in(person).get(LOOK).status_code == 404
        assert signed_in(person).post(LOOK, {"reason": "x"}).status_code == 404
    with pytest.raises(DeniedError):
        support_views.begin_view(tenant=house.vision, user=house.ann, reason="x", moment=datetime.now(UTC))
    with pytest.raises(TeamError, match="Say why"):
        support_views.begin_view(tenant=house.vision, user=house.op, reason="", moment=datetime.now(UTC))
    sue = User.objects.create_user(
        "sue@cluster.example", builders.PASSWORD, operator_role=OperatorRole.SUPPORT
    )
    assert BANNER in looks(sue).get("/t/vision-lab/").text


def test_it_ends_after_an_hour_by_a_button_or_with_the_role(house: House) -> None:
    op = looks(house.op)
    SupportView.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert "You no longer look at the tenant" in op.get("/t/vision-lab/team/", follow=True).text
    assert "Invite by e-mail" not in op.get("/t/vision-lab/team/").text
    op = looks(house.op)
    assert "You no longer look at Vision Lab" in op.post(END, follow=True).text
    assert BANNER not in op.get("/t/vision-lab/").text
    op = looks(house.op)
    User.objects.filter(pk=house.op.pk).update(operator_role="", is_staff=False, is_superuser=False)
    assert op.get("/t/vision-lab/", follow=True).status_code == 404 or BANNER not in op.get("/tenants/").text


def test_another_tenant_is_not_seen_so(house: House) -> None:
    op = looks(house.op)
    assert "Invite by e-mail" not in op.get("/t/speech-lab/team/").text
    assert op.get("/t/speech-lab/history/").status_code == 404


def test_a_number_of_somebody_elses_look_opens_nothing(house: House) -> None:
    looks(house.op)
    ann = signed_in(house.eve)
    session = ann.session
    session["support_view"] = SupportView.objects.get().pk
    session.save()
    assert ann.get("/t/vision-lab/", follow=True).status_code != 500
    assert ann.get("/t/vision-lab/").status_code == 404


def test_what_writes_to_compute_says_so(house: House) -> None:
    """A quote prices a job that it stores and takes back."""
    path = "/t/vision-lab/quote/?gpus=2&gpu_model=a100&hours=3"
    assert "12.00" in page(house.ann, path)
    op = looks(house.op)
    assert op.get("/t/vision-lab/quote/").status_code == 200
    answer = op.get(path, follow=True)
    assert answer.redirect_chain[-1][0] == "/t/vision-lab/"
    assert "This cannot be computed while you look" in answer.text


def test_a_role_without_the_history_neither_begins_a_look_nor_goes_on_with_one(house: House) -> None:
    """A look shows what the owner sees, the history too."""
    clu = User.objects.create_user(
        "clu@cluster.example", builders.PASSWORD, operator_role=OperatorRole.CLUSTER
    )
    browser = signed_in(clu)
    assert LOOK not in browser.get("/tenants/").text
    assert LOOK in page(house.op, "/tenants/")
    assert [browser.get(LOOK).status_code, browser.post(LOOK, {"reason": "x"}).status_code] == [404, 404]
    with pytest.raises(DeniedError):
        support_views.begin_view(tenant=house.vision, user=clu, reason="x", moment=datetime.now(UTC))
    assert not SupportView.objects.exists()
    op = looks(house.op)
    assert op.get("/t/vision-lab/history/").status_code == 200
    User.objects.filter(pk=house.op.pk).update(operator_role=OperatorRole.CLUSTER, is_superuser=False)
    assert "You no longer look at the tenant" in op.get("/t/vision-lab/history/", follow=True).text
    assert op.get("/t/vision-lab/history/").status_code == 404
