"""What commands about wallets share: finding one, and saying how it stands."""

from __future__ import annotations

from typing import Any

from billing.models import Wallet
from billing.rules.money import Money
from portal.excerpt import quoted
from portal.ops.cli import BadInputError


def the_wallet(tenant: str, unit: str | None, project: str | None, user: str | None) -> Wallet:
    """The one that is meant. Raises BadInputError where none is, or more than one."""
    candidates = Wallet.objects.select_related("tenant", "project", "scheme").filter(tenant__slug=tenant)
    if unit:
        candidates = candidates.filter(unit=unit)
    if project is not None:
        candidates = candidates.filter(project__name=project)
    if user is not None:
        candidates = candidates.filter(user=user)
    wallets = list(candidates.order_by("pk")[:20])
    if len(wallets) == 1:
        return wallets[0]
    if not wallets:
        raise BadInputError(
            f"{quoted(tenant)} has no such wallet: give the tenant [[tenant.wallet]] in a file for `apply`; a user's "
            "is opened with its first use."
        )
    listed = ", ".join(f"{wallet} in {wallet.unit}" for wallet in wallets)
    raise BadInputError(f"Say with --unit, --project or --user which wallet is meant: {listed}.")


def wallet_data(wallet: Wallet) -> dict[str, Any]:
    """How it stands; amounts as text in its unit."""
    return {
        "tenant": wallet.tenant.slug,
        "owner": wallet.user or (wallet.project.name if wallet.project else ""),
        "unit": wallet.unit,
        "balance": Money.from_minor(wallet.balance, wallet.unit).text,
        "held": Money.from_minor(wallet.held, wallet.unit).text,
        "overdraft": Money.from_minor(wallet.scheme.overdraft, wallet.unit).text,
    }
