"""`import_tokens TENANT`: balances and blocked users of GPU_token_manager, for the tenant's wallets of tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.quotas import token_import
from billing.quotas.token_files import MOST_BYTES, TokenFileError
from billing.quotas.token_import import TokenImport
from billing.rules.money import TOKENS, Money
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Bring over balances and blocked users as GPU_token_manager keeps them. The same files again: nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (TokenFileError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("--balances", type=Path, metavar="FILE", help="users_tokens.json")
        parser.add_argument("--blocked", type=Path, metavar="FILE", help="black_house.json")
        parser.add_argument("--dry-run", action="store_true", help="say what would be taken; keep nothing")

    def answer(self, **options: Any) -> Answer:
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if tenant is None:
            raise BadInputError(f"There is no tenant {quoted(options['tenant'])}.")
        with acting_as("import_tokens"):
            done = token_import.import_tokens(
                tenant=tenant,
                balances=_content(options["balances"]),
                blocked=_content(options["blocked"]),
                by="import_tokens",
                moment=datetime.now(UTC).replace(microsecond=0),
                preview=options["dry_run"],
            )
        return Answer(_data(done), _text(done, preview=options["dry_run"]), 1 if done.left_out else 0)


def _content(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        with file.open("rb") as handle:
            return handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"{file} cannot be read: {error.strerror}.") from error


def _data(done: TokenImport) -> dict[str, Any]:
    return {
        "balances": [
            {
                "user": row.user,
                "balance": Money.from_minor(row.balance, TOKENS).text,
                "wallet": Money.from_minor(row.after, TOKENS).text,
                "is_new": row.is_new,
            }
            for row in done.balances
        ],
        "blocked": done.blocked,
        "left_out": [{"user": one.user, "reason": sentence(one.error)} for one in done.left_out],
    }


def _text(done: TokenImport, *, preview: bool) -> str:
    new = sum(row.is_new for row in done.balances)
    head = "Nothing is kept. " if preview else ""
    same, blocked, left_out = len(done.balances) - new, len(done.blocked), len(done.left_out)
    lines = [f"{head}{new} balances brought over, {same} as before, {blocked} blocked, {left_out} left out."]
    lines += [f"left out: {quoted(one.user)}: {sentence(one.error)}" for one in done.left_out]
    return "\n".join(lines)
