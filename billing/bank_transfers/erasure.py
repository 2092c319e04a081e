"""Erasing who paid, once every tenant that a transfer was booked on has been erased.

What the books need stays: account, amount, day, the bank's own name for it, and what it was booked on. Only an IBAN
tells accounts apart: what banks write where they have none, as zeros, is the same for many payers.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Exists, F, Func, OuterRef, Q, QuerySet, TextField
from stdnum import iban as ibans

from billing.bank_transfers import transfer_posting
from billing.models import RefusedEntry, Transfer, TransferPart, TransferState, WalletGrant
from billing.models.bank_transfers import STATEMENT_TEXTS
from portal.core.tenants.models import Tenant

OPEN = (TransferState.NEW, TransferState.WAITING)


def list_waiting(*, tenant: Tenant) -> list[Transfer]:
    """What came from accounts that paid for the tenant alone, and nobody has decided yet. Three queries at most."""
    theirs = _list_accounts(list(_list_own(tenant).only("payer_iban")))
    return (
        list(Transfer.objects.filter(payer_iban__in=theirs, state__in=OPEN).order_by("pk")) if theirs else []
    )


def list_unsettled(*, tenant: Tenant) -> list[RefusedEntry]:
    """What is in quarantine, names an account that paid for the tenant alone, and nobody has settled yet."""
    entries = _list_refused(_list_accounts(list(_list_own(tenant).only("payer_iban")))).filter(resolution="")
    return list(entries.select_related("statement").order_by("pk"))


def erase_payers(*, tenant: Tenant) -> int:
    """Erase the payers of the tenant's transfers, and of what left to the same accounts; of how many it was done.

    For a caller that holds the tenant's lock and has marked it erased, when `list_waiting` and `list_unsettled` are
    empty. A transfer that another tenant has a part of stays until that one is erased too. Again, only what is new.
    """
    rows = list(_list_own(tenant).only("payer_iban", "payer", "text", "account", "booked_on", "amount"))
    theirs = _list_accounts(rows)
    alike = Q(payer_iban__in=theirs)
    for row in rows:  # the same entry of another file, which was set aside
        same = Q(account=row.account, booked_on=row.booked_on, amount=row.amount)
        if ibans.is_valid(row.payer_iban):
            alike |= same & Q(payer_iban=row.payer_iban)
        for field in ("payer", "text"):  # a file without accounts: another payer's entry may be as large
            if name := getattr(row, field):
                alike |= same & Q(payer_iban__in={"", row.payer_iban}, **{field: name})
    booked = Exists(TransferPart.objects.filter(transfer=OuterRef("pk")))
    aside = Transfer.objects.filter(alike, ~booked, state=TransferState.IGNORED)
    keys = [row.pk for row in rows] + list(aside.values_list("pk", flat=True))
    condition = Q()
    for name in STATEMENT_TEXTS:
        condition |= ~Q(**{name: ""})
    done = Transfer.objects.filter(condition, pk__in=keys).update(**dict.fromkeys(STATEMENT_TEXTS, ""))
    WalletGrant.objects.filter(transfer_parts__transfer__in=keys).update(granted_by=transfer_posting.BY)
    _list_refused(theirs).exclude(resolution="").update(raw="", values={})
    return done


def _list_refused(accounts: set[str]) -> QuerySet[RefusedEntry]:
    """Entries in quarantine that name one of the accounts, in whatever groups."""
    named = Q(pk__in=())
    for account in accounts:
        named |= Q(together__contains=account)
    return RefusedEntry.objects.alias(together=_TOGETHER).filter(named)


_TOGETHER = Func(
    F("raw"),
    template=r"upper(regexp_replace(%(expressions)s, '[\s\u00a0\u202f]', '', 'g'))",
    output_field=TextField(),
)
"""An entry as the bank wrote it, without its spaces."""


def _list_own(tenant: Tenant) -> QuerySet[Transfer]:
    """What was booked on it and what took that back, and on nobody else who is not erased."""
    living = _LIVING.exclude(tenant=tenant).filter(
        Q(transfer=OuterRef("pk")) | Q(transfer__undone_by=OuterRef("pk"))
    )
    own = Q(parts__tenant=tenant) | Q(undoes__parts__tenant=tenant)
    return Transfer.objects.filter(own, ~Exists(living)).exclude(state__in=OPEN).distinct()


def _list_accounts(rows: Sequence[Transfer]) -> set[str]:
    """The payers' IBANs that paid for nobody else who is not erased."""
    tenants = set(TransferPart.objects.filter(transfer__in=rows).values_list("tenant", flat=True))
    theirs = {row.payer_iban for row in rows if ibans.is_valid(row.payer_iban)}
    others = _LIVING.exclude(tenant__in=tenants).filter(transfer__payer_iban__in=theirs)
    return theirs - set(others.values_list("transfer__payer_iban", flat=True))


_LIVING = TransferPart.objects.filter(tenant__archive__erased_at=None)
"""Parts of tenants that are not erased."""
