"""Rounds of dunning that are killed anywhere, or meet ten thousand invoices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.core.mail.message import EmailMessage
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Invoice, Notice
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.collecting import a_lab
from tests.integration.test_race_for_the_same_rows import at_once
from tests.tiers import whole_or

NOW = at("2026-04-18 09:00")
"""Three days after the invoice of March was due: its first reminder is."""


class KilledError(BaseException):
    """The process is gone: nothing handles it."""


class Fragile(EmailBackend):
    """A mail server whose client is killed once: before the notice went out, or after."""

    dies = ""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        if Fragile.dies == "before":
            raise KilledError
        sent = super().send_messages(messages)
        if Fragile.dies == "after":
            raise KilledError
        return int(sent)


def dies_at(statement: int, do: Callable[[], object]) -> bool:
    """Do it, and be killed before that statement to the database; whether it came so far."""
    left = [statement]

    def count(execute: Any, *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KilledError
        return execute(*args)

    try:
        with connection.execute_wrapper(count):
            do()
    except KilledError:
        connection.close()
        return True
    return False


def a_round(moment: datetime = NOW) -> None:
    dunning_run.run_dunning(moment=moment)
    delivery.send_notices(moment=moment)


def a_tenant_that_owes() -> None:
    a_lab("USD", "2.00")
    Tenant.objects.update(email="bills@vision.example")


@pytest.mark.django_db(transaction=True)
@pytest.mark.peers  # takes long
def test_case_089_killed_at_any_statement_no_letter_is_sent_twice_and_none_is_forgotten(
    settings: Any,
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    a_tenant_that_owes()
    statement, unknown = 0, 0
    while True:
        statement += 1
        Notice.objects.all().delete()
        mail.outbox.clear()
        if not dies_at(statement, a_round):
            break
        for _ in range(3):
            a_round()
        notice = Notice.objects.get()
        if notice.state == "sending":  # it may have arrived: people look, and it is not sent again
            unknown += 1
            assert len(mail.outbox) <= 1
        else:
            assert (notice.state, len(mail.outbox)) == ("sent", 1)
    assert statement > 20
    assert unknown <= 3  # around the mail server's answer alone


@pytest.mark.swept
@pytest.mark.django_db(transaction=True)
def test_case_089_where_letters_are_kept_each_is_kept_exactly_once_wherever_it_is_killed() -> None:
    a_tenant_that_owes()
    statement = 0
    while True:
        statement += whole_or(3, 1)
        Notice.objects.all().delete()
        if not dies_at(statement, a_round):
            break
        a_round()
        assert Notice.objects.get().state == "drafted"
    assert statement > 20


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("dies", "arrived"), [("before", 0), ("after", 1)])
def test_killed_while_the_mail_server_has_it_it_is_shown_and_not_sent_again(
    dies: str, arrived: int, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    settings.EMAIL_BACKEND = "tests.scenarios.test_dunning_endures.Fragile"
    a_tenant_that_owes()
    Fragile.dies = dies
    with pytest.raises(KilledError):
        a_round()
    Fragile.dies = ""
    for _ in range(3):
        a_round()
    assert (Notice.objects.get().state, len(mail.outbox)) == ("sending", arrived)


@pytest.mark.django_db(transaction=True)
def test_rounds_and_workers_at_once_send_one_letter(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    a_tenant_that_owes()
    for _ in range(10):
        Notice.objects.all().delete()
        mail.outbox.clear()
        at_once(a_round, a_round, a_round, a_round)
        a_round()
        assert (Notice.objects.get().state, len(mail.outbox)) == ("sent", 1)


@pytest.mark.peers  # takes long
@pytest.mark.django_db
def test_ten_thousand_late_invoices_take_as_many_queries_as_one() -> None:
    a_tenant_that_owes()
    early = at("2026-04-17 09:00")
    with CaptureQueriesContext(connection) as few:
        assert dunning_run.run_dunning(moment=early).late == 1
    copies(9_999)
    with CaptureQueriesContext(connection) as many:
        began = time.monotonic()
        done = dunning_run.run_dunning(moment=early)
        took = time.monotonic() - began
    assert (done.late, done.written) == (10_000, 0)
    assert len(many) <= len(few) + 1  # letters are asked for in slices
    assert took < 20  # about one second on a machine of its own

    assert dunning_run.run_dunning(moment=NOW).written == 10_000
    assert Notice.objects.count() == 10_000
    assert dunning_run.run_dunning(moment=NOW).written == 0


def copies(count: int) -> None:
    """So many more invoices like each one there is."""
    columns = [str(field.column) for field in Invoice._meta.concrete_fields if field.column != "id"]
    expressions = ", ".join(
        {"number": "'COPY-' || id || '-' || n", "kind": "'correction'"}.get(name, f'"{name}"')
        for name in columns
    )
    names = ", ".join(f'"{name}"' for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO billing_invoice ({names}) SELECT {expressions} "
            f"FROM billing_invoice CROSS JOIN generate_series(1, {count}) n"
        )
