"""`decide_sign_up SLUG --approve` or `--refuse REASON`: what the page *Sign-ups* does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.catalog.plans import PlanError
from billing.invoicing.offboarding import ArchiveError
from billing.models import SignUp
from billing.sign_up import requests
from billing.sign_up.policy import SignUpError
from billing.wallets.entries import WalletError
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.sign_ups import sign_up_data, sign_up_line


class Command(OperatorCommand):
    help = "Approve a sign-up, or refuse it; the person is told by e-mail."
    refusals: ClassVar[tuple[type[Exception], ...]] = (SignUpError, PlanError, WalletError, ArchiveError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="SLUG")
        decision = parser.add_mutually_exclusive_group(required=True)
        decision.add_argument("--approve", action="store_true")
        decision.add_argument("--refuse", metavar="REASON", help="which the person reads")

    def answer(self, **options: Any) -> Answer:
        tenant, who = the_tenant(options["tenant"]), "decide_sign_up"
        row = SignUp.objects.filter(tenant=tenant).first()
        if row is None:
            raise BadInputError(f"Nobody signed up for {tenant.slug}.")
        moment = datetime.now(UTC).replace(microsecond=0)
        with acting_as(who, why=(options["refuse"] or "")[:200]):
            if options["approve"]:
                row = requests.approve(sign_up=row, by=who, moment=moment)
            else:
                row = requests.refuse(sign_up=row, by=who, reason=options["refuse"], moment=moment)
        return Answer(sign_up_data(row), sign_up_line(row))
