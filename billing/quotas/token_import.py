"""Bringing over what GPU_token_manager knew: each user's balance, and whom it kept from GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Sum

from billing.catalog.tenant_lock import lock
from billing.models import (
    DebtTerms,
    EntrySide,
    GrantEvery,
    QuotaChange,
    Wallet,
    WalletEntry,
    WalletGrant,
    WalletScheme,
    WalletScope,
)
from billing.quotas import debts
from billing.quotas.token_files import LeftOut, TokenFileError, TokenRowError, read_balances, read_blocked
from billing.rules.money import TOKENS, Money
from billing.rules.wallet import Piece
from billing.wallets import replay
from billing.wallets.booking import Owner, wallet_of
from billing.wallets.entries import Booking, locked
from billing.wallets.grants import grant
from billing.wallets.replay import Change
from portal.core.tenants.models import Tenant

BROUGHT_OVER = "Balance brought over from GPU_token_manager"
"""The reference of what is given, and the text of what is taken: once for each wallet."""


@dataclass(frozen=True, slots=True)
class BroughtOver:
    """A user's balance by the file, and of the wallet afterwards, which has what was used since; smallest units."""

    user: str
    balance: int
    after: int
    is_new: bool


@dataclass(slots=True)
class TokenImport:
    """What was taken, whom a block stays with, and who was left out of either file, with the reason."""

    balances: list[BroughtOver] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def import_tokens(
    *,
    tenant: Tenant,
    balances: bytes | None,
    blocked: bytes | None,
    by: str,
    moment: datetime,
    preview: bool = False,
) -> TokenImport:
    """Open a wallet for each user with the balance of the file, and let the blocked ones stay so until they are free.

    The balance takes the place of what the scheme gives once. The same files again change nothing: a balance is brought
    over once, whatever was used since. A `preview` does all of it and keeps nothing. Raises TokenFileError, and then
    nothing is taken; a user who cannot be taken is left out with the reason.
    """
    result = TokenImport()
    with transaction.atomic():
        tenant = lock(tenant)
        scheme = _scheme_of(tenant)
        if balances is None and blocked is None:
            raise TokenFileError("token-file-none")
        if balances is not None:
            _import_balances(scheme, balances, by, moment, result)
        if blocked is not None:
            _import_blocked(scheme, blocked, moment, result)
        QuotaChange.objects.create(tenant=tenant)
        transaction.set_rollback(preview)
    return result


def _scheme_of(tenant: Tenant) -> WalletScheme:
    rows = WalletScheme.objects.select_related("tenant").filter(tenant=tenant, unit=TOKENS)
    scheme = rows.filter(scope=WalletScope.USER).first()
    if scheme is None:
        raise TokenFileError("token-no-wallets", tenant=tenant.slug, unit=TOKENS)
    return scheme


def _import_balances(
    scheme: WalletScheme, data: bytes, by: str, moment: datetime, result: TokenImport
) -> None:
    content = read_balances(data)
    result.left_out += content.left_out
    for user, balance in sorted(content.rows.items()):
        try:
            result.balances.append(_bring_over(scheme, user, balance, by, moment))
        except TokenRowError as error:
            result.left_out.append(LeftOut(user, error))


def _bring_over(scheme: WalletScheme, user: str, balance: int, by: str, moment: datetime) -> BroughtOver:
    if balance < -scheme.overdraft:
        raise TokenRowError(
            "token-below-overdraft", balance=_text(balance), overdraft=_text(scheme.overdraft)
        )
    if moment < scheme.since:
        raise TokenRowError("token-too-early", since=scheme.since)
    is_new = not Wallet.objects.filter(scheme=scheme, project=None, user=user).exists()
    wallet = locked([wallet_of(scheme, Owner(None, user)).pk]).popitem()[1]
    replay.settle(wallet=wallet, moment=moment)
    once = WalletGrant.objects.filter(wallet=wallet, rule__every=GrantEvery.ONCE)
    amount = balance - (once.aggregate(sum=Sum("amount"))["sum"] or 0)
    before = _brought_over_before(wallet)
    if before not in (0, amount):
        raise TokenRowError("token-brought-over", balance=_text(balance - amount + before))
    if not before and amount > 0:
        grant(wallet=wallet, amount=amount, key=BROUGHT_OVER, who=by, why=BROUGHT_OVER, moment=moment)
    elif not before and amount < 0:
        _take(wallet, -amount, moment)
    wallet.refresh_from_db(fields=["balance"])
    return BroughtOver(user, balance, wallet.balance, is_new=is_new or before != amount)


def _brought_over_before(wallet: Wallet) -> int:
    """What an earlier import gave, or took, below zero."""
    grants = WalletGrant.objects.filter(wallet=wallet, key=BROUGHT_OVER).values_list("amount", flat=True)
    spent = WalletEntry.objects.filter(wallet=wallet, side=EntrySide.SPENT, memo=BROUGHT_OVER)
    return sum(grants) - (spent.aggregate(sum=Sum("amount"))["sum"] or 0)


def _take(wallet: Wallet, amount: int, moment: datetime) -> None:
    """A balance that is lower than what the scheme gave; what was used since may stand below the overdraft."""
    today = moment.astimezone(wallet.tenant.zone).date()
    booking = Booking([Piece(None, -amount)], EntrySide.SPENT, moment, memo=BROUGHT_OVER, day=today)
    replay.settle(wallet=wallet, moment=moment, change=Change(bookings=[booking], since=today))


def _import_blocked(scheme: WalletScheme, data: bytes, moment: datetime, result: TokenImport) -> None:
    users, left_out = read_blocked(data)
    result.left_out += left_out
    terms = DebtTerms.objects.filter(scheme=scheme).first()
    if terms is None:
        raise TokenFileError("token-no-debt", tenant=scheme.tenant.slug)
    wallets = {wallet.user: wallet for wallet in Wallet.objects.filter(scheme=scheme, user__in=users)}
    confined = []
    for user in users:
        try:
            confined.append(_confined(wallets, user, terms).pk)
            result.blocked.append(user)
        except TokenRowError as error:
            result.left_out.append(LeftOut(user, error))
    debts.follow_debts([scheme.tenant_id], moment=moment, confined=confined)


def _confined(wallets: Mapping[str, Wallet], user: str, terms: DebtTerms) -> Wallet:
    if user not in wallets:
        raise TokenRowError("token-no-wallet")
    balance = wallets[user].balance
    if balance >= terms.free_at:
        raise TokenRowError("token-free", balance=_text(balance), free_at=_text(terms.free_at))
    return wallets[user]


def _text(amount: int) -> str:
    return Money.from_minor(amount, TOKENS).text
