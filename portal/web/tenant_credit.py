"""Credit that an operator grants to a wallet of a tenant, once under a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from billing.models import GrantKind, Wallet
from billing.wallets import grants
from billing.wallets.entries import WalletError
from portal.core.tenants.access import Right
from portal.web import acts
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.acts import ActError, Field, Preview, Values
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame
from portal.web.tenant_acts import tenant_act_of, tenant_of


@operator_page("tenants", acts=Right.CREDITS)
def grant_credit(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    row = tenant_of(tenant)
    wallets = Wallet.objects.filter(tenant=row).select_related("project", "tenant").order_by("pk")
    form = _GrantForm({str(one.pk): one for one in wallets}, datetime.now(UTC).replace(microsecond=0))

    def carry_out(values: Values) -> str:
        form.give(values, str(request.user))
        wallet = form.wallet(values)
        balance = say.minor(_balance(wallet), wallet.unit)
        return _("The wallet of {wallet} has {balance} now.").format(wallet=wallet, balance=balance)

    act = tenant_act_of(
        row,
        _("Grant credit to {tenant}"),
        _("Grant credit"),
        Right.CREDITS,
        _fields(form.wallets.values()),
        form.preview,
        carry_out,
        (WalletError,),
        needs_proof=True,
    )
    return acts.conduct(request, frame, act)


@dataclass(frozen=True, slots=True)
class _GrantForm:
    """What was entered, as the use case takes it."""

    wallets: Mapping[str, Wallet]
    moment: datetime

    def wallet(self, values: Values) -> Wallet:
        wallet = self.wallets.get(values["wallet"])
        if wallet is None:
            raise ActError(
                _("Choose a wallet. A tenant has one once its plan settles by a wallet, or a scheme is set.")
            )
        return wallet

    def give(self, values: Values, who: str) -> None:
        wallet = self.wallet(values)
        if not values["reference"]:
            raise ActError(_("Enter a reference: credit is given once under it."))
        grants.grant(
            wallet=wallet,
            amount=acts.amount(values["amount"], wallet.unit).minor,
            key=values["reference"][:200],
            who=who,
            why=values["why"],
            moment=self.moment,
            kind=GrantKind.TOP_UP if values["paid"] else GrantKind.GIFT,
            expires_on=acts.day(values["expires"]) if values["expires"] else None,
        )

    def preview(self, values: Values) -> Preview:
        wallet = self.wallet(values)
        with transaction.atomic():
            before = _balance(wallet)  # which another confirmation may have changed since the form began
            self.give(values, "preview")
            after = _balance(wallet)
            transaction.set_rollback(True)
        if after == before:
            text = _("Credit was given under this reference before: nothing changes.")
            return Preview([text], possible=False)
        text = _("The wallet of {wallet} has {before}, and {after} afterwards.")
        amounts = {"before": say.minor(before, wallet.unit), "after": say.minor(after, wallet.unit)}
        return Preview([text.format(wallet=wallet, **amounts)])


def _fields(wallets: Iterable[Wallet]) -> list[Field]:
    options = [
        Option(value=str(one.pk), label=f"{one}, {say.minor(one.balance, one.unit)}") for one in wallets
    ]
    amount_hint = _("In the wallet's unit, such as 250.00.")
    expires_hint = _("The first day that it does not pay for. Blank = never.")
    why_hint = _("The tenant sees it on the wallet's statement.")
    return [
        Field(name="wallet", label=_("Wallet"), kind="select", options=options, required=True),
        Field(name="amount", label=_("Amount"), kind="number", required=True, hint=amount_hint),
        Field(
            name="reference", label=_("Reference"), required=True, hint=_("Credit is given once under it.")
        ),
        Field(name="expires", label=_("Expires on"), kind="date", hint=expires_hint),
        Field(name="paid", label=_("It was paid for, rather than given"), kind="check"),
        Field(name="why", label=_("Reason"), hint=why_hint),
    ]


def _balance(wallet: Wallet) -> int:
    return Wallet.objects.values_list("balance", flat=True).get(pk=wallet.pk)
