"""`recover_database BASE ARCHIVE --into DIRECTORY`: the database as of a moment, from its WAL; proved and timed."""

from __future__ import annotations

import shutil
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.management.base import CommandParser

from portal.ops import backups
from portal.ops.backups import BackupError, Proved
from portal.ops.cli import Answer, OperatorCommand, instant_text, moment
from portal.ops.recovery import Recovered, recovered

ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Command(OperatorCommand):
    help = "Recover the database to a moment from a base backup and archived WAL, and prove it. Touches no other."
    refusals: ClassVar = (BackupError,)
    needs_schema = False  # it brings one

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("base", type=Path, metavar="BASE", help="the directory that pg_basebackup wrote")
        parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="the directory of WAL segments")
        parser.add_argument(
            "--into", type=Path, metavar="DIRECTORY", required=True, help="empty, or not there"
        )
        parser.add_argument(
            "--at", metavar="WHEN", default="", help="moment, UTC unless said; else the end of the archive"
        )
        parser.add_argument("--preview", action="store_true", help="remove the directory afterwards")
        parser.add_argument(
            "--reconcile", action="store_true", help="compare what was recovered with Stripe, too"
        )

    def answer(
        self, *, base: Path, archive: Path, into: Path, at: str, preview: bool, reconcile: bool, **_: Any
    ) -> Answer:
        wanted = moment(at, ZoneInfo("UTC")) if at else None
        for number in ENDINGS:
            if signal.getsignal(number) != signal.SIG_IGN:  # which `nohup` asks for
                signal.signal(number, _end)
        into = into.resolve()  # what a link leads to is written and removed
        began = datetime.now(UTC)
        login, name = backups.login_of(settings.DATABASE_URL), backups.name_of(settings.DATABASE_URL)
        ours, kept = not into.exists() or (into.is_dir() and not any(into.iterdir())), False
        try:
            with recovered(base, archive, into, at=wanted, login=login, database=name) as done:
                with done.timed("prove"):
                    proved = backups.prove(done.url)
                found = _reconcile(done) if reconcile else None
            kept = not preview
        finally:
            if ours and not kept:
                shutil.rmtree(into, ignore_errors=True)
                kept = into.is_dir() and any(into.iterdir())
                if kept:
                    self.stderr.write(
                        f"{into} is a copy of the database and cannot be removed: do it by hand."
                    )
        data = _data(done, proved, began=began) | {
            "at": wanted,
            "kept": kept,
            "differences": found,
        }
        lines = _lines(data, into)
        if not preview:
            lines.append(f"{into} is kept: start PostgreSQL on it.")
        elif not kept:
            lines.append(f"{into} is removed again.")
        return Answer(data, "\n".join(lines), 0 if proved.holds and not found and kept != preview else 1)


def _end(number: int, frame: object) -> NoReturn:
    """As Ctrl-C does: the server stops, and what is half done is removed, however often it is said."""
    del frame
    for each in ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _reconcile(done: Recovered) -> list[dict[str, Any]]:
    since = done.last_change or datetime.now(UTC)
    found = backups.run_command(done.url, "reconcile", "--since", instant_text(since), codes=(0, 1))
    if "error" in found:
        raise BackupError(str(found["error"]))
    differences: list[dict[str, Any]] = found["differences"]
    return differences


def _data(done: Recovered, proved: Proved, *, began: datetime) -> dict[str, Any]:
    archived = done.archive.newest_at
    return {
        "last_change": done.last_change,
        "holds": proved.holds,
        "proof": proved.proof,
        "secrets": proved.secrets,
        "rpo_seconds": None if archived is None else _tenths((began - archived).total_seconds()),
        "rto_seconds": _tenths(sum(done.seconds.values())),
        "steps": {step: _tenths(seconds) for step, seconds in done.seconds.items()},
    }


def _tenths(seconds: float) -> str:
    return f"{max(seconds, 0):.1f}"


def _lines(data: dict[str, Any], into: Path) -> list[str]:
    last = data["last_change"]
    until = f"its last change is of {last:%Y-%m-%d %H:%M:%S} UTC" if last else "nothing was replayed"
    steps = ", ".join(f"{seconds} s to {step}" for step, seconds in data["steps"].items())
    lines = [
        f"Recovered into {into}: {until}. {data['proof']} {data['secrets']} stored secrets can be read.",
        f"RPO: {data['rpo_seconds']} s, the age of the newest archived segment: so much would be lost with the server.",
        f"RTO: {data['rto_seconds']} s: {steps}.",
    ]
    if data["differences"] is not None:
        lines.append(f"Stripe: {len(data['differences'])} differences since the last change.")
        lines += [
            f"  {row['kind']}: {row['object']}: here {row['ours']}, there {row['theirs']}"
            for row in data["differences"]
        ]
    return lines
