"""Balances and blocked users of GPU_token_manager, entered for a tenant: previewed, then brought over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from billing.quotas import token_import
from billing.quotas.token_files import TokenFileError
from billing.quotas.token_import import TokenImport
from billing.rules.money import TOKENS
from portal.core.tenants.access import Right
from portal.excerpt import quoted
from portal.sentences import sentence
from portal.web import acts
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.acts import Field, Preview, Values
from portal.web.page_frame import PageFrame
from portal.web.tenant_acts import tenant_act_of, tenant_of

SHOWN = 100
"""Users that a preview names, and reasons; there are more in what the command prints."""


@operator_page("tenants", acts=Right.CREDITS)
def import_tokens(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    row, moment = tenant_of(tenant), datetime.now(UTC).replace(microsecond=0)

    def take(values: Values, *, preview: bool) -> TokenImport:
        return token_import.import_tokens(
            tenant=row,
            balances=values["balances"].encode() if values["balances"] else None,
            blocked=values["blocked"].encode() if values["blocked"] else None,
            by=str(request.user),
            moment=moment,
            preview=preview,
        )

    def preview(values: Values) -> Preview:
        done = take(values, preview=True)
        return Preview(_sentences(done), possible=bool(_count(done) or done.blocked))

    def carry_out(values: Values) -> str:
        done = take(values, preview=False)
        return _summary(done)

    act = tenant_act_of(
        row,
        _("Import token balances of {tenant}"),
        _("Import"),
        Right.CREDITS,
        _fields(),
        preview,
        carry_out,
        (TokenFileError,),
        needs_proof=True,
    )
    return acts.conduct(request, frame, act)


def _fields() -> Sequence[Field]:
    return (
        Field(
            name="balances",
            label=_("Content of users_tokens.json"),
            kind="lines",
            hint=_("As GPU_token_manager writes it. Each user gets a wallet with this balance, once."),
        ),
        Field(
            name="blocked",
            label=_("Content of black_house.json"),
            kind="lines",
            hint=_(
                "Users that it blocks from GPUs. They stay blocked until their wallet has the balance that ends a debt."
            ),
        ),
        Field(name="why", label=_("Reason"), hint=_("For the history.")),
    )


def _count(done: TokenImport) -> int:
    return sum(row.is_new for row in done.balances)


def _summary(done: TokenImport) -> str:
    return _("{new} balances brought over, {same} as before, {blocked} blocked, {left_out} left out.").format(
        new=_count(done),
        same=len(done.balances) - _count(done),
        blocked=len(done.blocked),
        left_out=len(done.left_out),
    )


def _sentences(done: TokenImport) -> list[str]:
    """What is left out first: that needs somebody."""
    rows = [_("Left out, {user}: {reason}").format(user=quoted(one.user), reason=sentence(one.error))
            for one in done.left_out]  # fmt: skip
    rows += [
        _("{user}: {balance}").format(user=row.user, balance=say.minor(row.balance, TOKENS))
        for row in done.balances
        if row.is_new
    ]
    rows += [_("{user} stays blocked.").format(user=user) for user in done.blocked]
    more = len(rows) - SHOWN
    return [_summary(done), *rows[:SHOWN], *([_("And {count} more.").format(count=more)] if more > 0 else [])]
