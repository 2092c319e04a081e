"""Notices go out though the mail server closes its connections, and one that cannot be written stops no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Invoice, Notice
from portal.core.tenants.models import Tenant
from tests.fakes.mail import Counting, counting
from tests.owner import as_owner
from tests.scenarios.test_dunning_endures import NOW, a_tenant_that_owes, copies

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(settings: Any) -> Iterator[Counting]:
    """It takes two mails a connection."""
    with counting(most=2) as mail_server:
        settings.CLUSTERTAB_SENDS_MAIL = True
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = mail_server.server_address[:2]
        yield mail_server


def test_a_mail_server_that_takes_two_letters_a_connection_is_given_all_seven(server: Counting) -> None:
    a_tenant_that_owes()
    copies(6)
    with as_owner() as cursor:
        cursor.execute("ALTER TABLE billing_invoice DISABLE TRIGGER USER")
    for number, invoice in enumerate(
        Invoice.objects.order_by("pk")
    ):  # of seven tenants: one's would be one e-mail
        slug = f"lab-{number}"
        lab = Tenant.objects.create(slug=slug, name=slug, email=f"bills@{slug}.example")
        Invoice.objects.filter(pk=invoice.pk).update(tenant=lab)
    with as_owner() as cursor:
        cursor.execute("ALTER TABLE billing_invoice ENABLE TRIGGER USER")
    dunning_run.run_dunning(moment=NOW)
    done = delivery.send_notices(moment=NOW)
    assert (done.sent, done.troubles, server.accepted) == (7, [], 7)
    assert set(Notice.objects.values_list("state", flat=True)) == {"sent"}


def test_an_address_that_is_none_waits_for_somebody_to_correct_it(server: Counting) -> None:
    a_tenant_that_owes()
    Tenant.objects.update(email="bills@vision.example, boss@vision.example")
    dunning_run.run_dunning(moment=NOW)
    delivery.send_notices(moment=NOW)
    notice = Notice.objects.get()
    assert (notice.state, server.accepted) == ("failed", 0)
    assert notice.reason == (
        "An address is none that e-mail can go to: correct the tenant's billing e-mail, then send it again."
    )
    Tenant.objects.update(email="bills@vision.example")
    delivery.resend_notice(notice=notice, moment=NOW)
    delivery.send_notices(moment=NOW)
    assert (Notice.objects.get().state, server.accepted) == ("sent", 1)
