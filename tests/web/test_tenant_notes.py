"""Notes of operators on a tenant: who wrote what and when, for operators alone."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError, connection, transaction
from django.test import Client

from portal.core.tenants.models import OperatorRole, TenantNote
from portal.core.tenants.scope import tenant_scope
from tests import builders
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

TENANT, HISTORY, ALL = "/operator/tenants/vision-lab/", "/t/vision-lab/history/", "/operator/history/"
SECRET = "pays late, <b>ask for Carla</b>"


@pytest.fixture
def house() -> House:
    return a_house(close=False)


def writes(browser: Client, text: str) -> str:
    return browser.post(TENANT, {"act": "add", "text": text}, follow=True).content.decode()


def test_operators_read_who_wrote_what_and_remove_only_their_own(house: House) -> None:
    sue = builders.a_person("sue@portal.example")
    sue.operator_role = OperatorRole.SUPPORT
    sue.save()
    html = writes(signed_in(sue), f"{SECRET}\r\nsince May\0")
    assert "pays late, &lt;b&gt;ask for Carla&lt;/b&gt;<br>since May" in html
    assert "sue@portal.example, " in html
    assert "Write the note first: it is empty." in writes(signed_in(sue), "  \n ")
    long = writes(signed_in(sue), "x" * 2001)
    assert "A note has at most 2000 characters, and this one has 2001" in long
    assert f">{'x' * 2001}</textarea>" in long  # what was typed is not gone
    assert [(note.author, note.tenant) for note in TenantNote.objects.all()] == [(sue.email, house.vision)]

    writes(signed_in(house.op), "called them")
    own, ops = TenantNote.objects.order_by("pk")
    assert f'name="note" value="{own.pk}"' in page(sue, TENANT)
    assert f'name="note" value="{ops.pk}"' not in page(sue, TENANT)
    refused = signed_in(sue).post(TENANT, {"act": "remove", "note": ops.pk}, follow=True)
    assert f"The note is by {house.op.email}" in refused.content.decode()
    elsewhere = signed_in(house.op).post("/operator/tenants/speech-lab/", {"act": "remove", "note": own.pk})
    assert elsewhere.status_code == 404
    signed_in(house.op).post(TENANT, {"act": "remove", "note": own.pk})  # an admin
    assert [note.text for note in TenantNote.objects.all()] == ["called them"]


def test_the_tenant_never_sees_a_note(house: House) -> None:
    op = signed_in(house.op)
    writes(op, SECRET)
    assert TENANT not in page(house.ann, "/t/vision-lab/")
    assert signed_in(house.ann).get(TENANT).status_code == 404
    assert signed_in(house.ann).post(TENANT, {"act": "add", "text": "mine"}).status_code == 404
    assert "ask for Carla" in page(house.op, ALL)
    for path in (HISTORY, f"{HISTORY}csv"):
        assert "ask for Carla" not in page(house.ann, path)
    op.post(f"{TENANT}look/", {"why": "a ticket", "reason": "a ticket"})
    looking = op.get(HISTORY).content.decode()
    assert "Operator looking in" in looking
    assert "ask for Carla" not in looking
    with (
        tenant_scope(house.vision),
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT text FROM tenants_tenantnote")
    with tenant_scope(house.vision), connection.cursor() as cursor:
        cursor.execute("""SELECT count(*) FROM audit_entry WHERE "table" = 'tenants_tenantnote'""")
        assert cursor.fetchone() == (0,)
