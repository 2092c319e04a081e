"""`apply FILE.toml`: have clusters, plans, tenants and their accounts be as a file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from portal.config_file.apply import Applied, apply
from portal.config_file.schema import ConfigError, parse
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress

LARGEST = 16 << 20  # bytes; a file of thousands of tenants is a hundredth of it


class Command(OperatorCommand):
    help = "Create and update clusters, plans and tenants from a TOML file; print what changes."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE.toml")
        parser.add_argument("--dry-run", action="store_true", help="do everything, print it and keep nothing")

    def answer(self, *, file: str, dry_run: bool, **_: Any) -> Answer:
        path = Path(file)
        text = read(path)
        try:
            with (
                acting_as(f"apply {path.name}", through=f"file {path.name}"),
                Progress("Usage rated again") as progress,
            ):
                applied = apply(file=parse(text), preview=dry_run, progress=progress.add)
        except ConfigError as error:
            raise BadInputError(*error.sentences, "Nothing was changed.") from error
        return Answer(data(applied, dry_run=dry_run), text_of(applied, dry_run=dry_run))


def read(path: Path) -> str:
    """The file's text; BadInputError where there is none."""
    try:
        if path.stat().st_size > LARGEST:
            raise BadInputError(f"{path} is larger than any configuration file; is it the right one?")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not UTF-8 text, as TOML has to be.") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}.") from None


def data(applied: Applied, *, dry_run: bool) -> dict[str, Any]:
    return {
        "changed": bool(applied.changes) and not dry_run,
        "dry_run": dry_run,
        "changes": [
            {"what": change.what, "field": change.field, "before": change.before, "after": change.after}
            for change in applied.changes
        ],
        "rated_accounts": applied.rated_accounts,
    }


def text_of(applied: Applied, *, dry_run: bool) -> str:
    if not applied.changes:
        return "Nothing to change."
    lines = [str(change) for change in applied.changes]
    if applied.rated_accounts:
        lines.append(f"Usage rated again: {_counted(applied.rated_accounts, 'account')}.")
    if dry_run:
        lines.append("This was a preview: nothing was changed.")
    return "\n".join(lines)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
