"""`backup_database FILE`: the whole database in one file, and which keys and directories belong to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from billing.models import GatewayAccount, SealedMonth
from portal.ops import backups
from portal.ops.backups import BackupError
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Write the whole database into a file. Says what has to be kept beside it."
    refusals: ClassVar = (BackupError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")

    def answer(self, *, file: Path, **_: Any) -> Answer:
        size = backups.dump(settings.DATABASE_URL, file)
        keys = [backups.fingerprint(key) for key in settings.CLUSTERTAB_SECRET_KEYS]
        label = str(GatewayAccount.objects.values_list("deployment", flat=True).first() or "")
        dropped = SealedMonth.objects.exclude(dropped_at=None).order_by("month")
        months = [f"{row}" for row in dropped]
        data = {
            "file": str(file),
            "bytes": size,
            "secret_keys": keys,
            "stripe_account_label": label,
            "months_in_files": months,
        }
        return Answer(data, "\n".join(_lines(file, size, keys, label, months)))


def _lines(file: Path, size: int, keys: list[str], label: str, months: list[str]) -> list[str]:
    lines = [f"{file}: {size:,} bytes. Keep apart from it, for whoever restores it:"]
    names = ", ".join(keys)
    lines.append(
        f"  CLUSTERTAB_SECRET_KEYS ({names}): without it tokens and passwords of clusters are lost."
        if keys
        else "  no CLUSTERTAB_SECRET_KEYS: none is set, and no secret of a cluster is kept."
    )
    lines.append("  SECRET_KEY: without it everybody signs in anew.")
    if label:
        lines.append(f"  STRIPE_ACCOUNT_LABEL={label}: what this portal is called at Stripe.")
    if months:
        place = settings.CLUSTERTAB_SEALED_MONTHS_BUCKET or "SEALED_MONTHS_DIRECTORY"
        lines.append(
            f"  the directories {', '.join(months)} in {place}: the rows of these months are there alone."
        )
    return lines
