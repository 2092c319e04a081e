"""`grant_credit TENANT AMOUNT --reference R`: give a wallet credit, as for money that arrived."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import GrantKind, Wallet
from billing.rules.money import Money
from billing.wallets import grants
from billing.wallets.entries import WalletError
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.wallets import the_wallet, wallet_data
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Give a wallet credit. The same reference again changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (WalletError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("amount", metavar="AMOUNT", help="in the wallet's unit, such as 250.00")
        parser.add_argument("--reference", required=True, help="what it is given for; given once under it")
        parser.add_argument("--unit", help="needed where the tenant has wallets of several units")
        parser.add_argument("--project", help="the project's wallet")
        parser.add_argument("--user", help="the scheduler user's wallet")
        parser.add_argument("--why", default="", help="the reason, for the history")
        parser.add_argument("--expires", metavar="DATE", help="the first day that it does not pay for")
        parser.add_argument("--top-up", action="store_true", help="it was paid for, rather than given away")

    def answer(self, **options: Any) -> Answer:
        wallet = the_wallet(options["tenant"], options["unit"], options["project"], options["user"])
        try:
            amount = Money.of(options["amount"], wallet.unit)
            expires_on = date.fromisoformat(options["expires"]) if options["expires"] else None
        except ValueError as error:
            raise BadInputError(sentence(error)) from error
        if amount != amount.rounded():
            raise BadInputError(f"{options['amount']} is finer than {wallet.unit} is counted.")
        with acting_as("grant_credit", why=options["why"]):
            grants.grant(
                wallet=wallet,
                amount=amount.minor,
                key=options["reference"],
                who="grant_credit",
                why=options["why"],
                moment=datetime.now(UTC).replace(microsecond=0),
                kind=GrantKind.TOP_UP if options["top_up"] else GrantKind.GIFT,
                expires_on=expires_on,
            )
        data = wallet_data(Wallet.objects.select_related("tenant", "project", "scheme").get(pk=wallet.pk))
        return Answer(data, f"The wallet of {wallet} holds {data['balance']} {wallet.unit} now.")
