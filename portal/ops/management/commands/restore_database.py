"""`restore_database FILE`: a backup into an empty database, or a preview of that beside the present one; proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from portal.ops import backups
from portal.ops.backups import BackupError
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Restore a backup into an empty database and prove it. Exit code 1 if a sum does not close."
    refusals: ClassVar = (BackupError,)
    needs_schema = False  # it makes one

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            "--into",
            metavar="URL",
            default="",
            help="an empty database and its owner; DATABASE_URL where left out",
        )
        where.add_argument(
            "--preview", action="store_true", help="into a second database, which is dropped afterwards"
        )

    def answer(self, *, file: Path, into: str, preview: bool, **_: Any) -> Answer:
        if into:
            return _restored(into, into, file, stays=True)
        url, name = settings.DATABASE_URL, backups.name_of(settings.DATABASE_URL)
        owner = backups.with_name(settings.DATABASE_OWNER_URL, name)
        if preview:
            with backups.scratch_database(owner) as second:
                url, owner = backups.with_name(url, second), backups.with_name(owner, second)
                return _restored(url, owner, file, stays=False)
        return _restored(url, owner, file, stays=True)


def _restored(url: str, owner: str, file: Path, *, stays: bool) -> Answer:
    """`url` is what works with the database afterwards, `owner` what owns its tables."""
    backups.restore(owner, file, login=backups.login_of(url))
    proved = backups.prove(url)
    data = {"file": str(file), "kept": stays, "holds": proved.holds, "secrets": proved.secrets}
    noun = "secret" if proved.secrets == 1 else "secrets"
    end = "" if stays else " The second database is dropped again."
    text = f"{file} is restored: {proved.proof} {proved.secrets} stored {noun} can be read.{end}"
    return Answer(data, text, 0 if proved.holds else 1)
