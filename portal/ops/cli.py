"""What operator commands share: one object with --json, one sentence and a code on failure, progress.

Exit codes: 0 done, 1 refused or failed, 2 the input cannot be meant. Standard output holds the
answer alone; progress goes to standard error, and only when somebody watches.
"""

from __future__ import annotations

import json
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import TracebackType
from typing import Any, ClassVar, Self, TextIO, TypeVar
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DataError, OperationalError
from django.utils.translation import gettext as _

from billing.rules import period as periods
from clusters.absent_records import MonthFilesError, RowsInFilesError
from portal.core.audit import acting_as
from portal.excerpt import excerpt, quoted
from portal.sentences import sentence

REDRAW = 0.1  # seconds between two states of a progress line
FIRST_YEAR, LAST_YEAR = 1970, 9998  # of a moment that anybody means, and that every zone has

Day = TypeVar("Day", bound=date)


class RefusedError(CommandError):
    """It cannot be done as things stand; nothing was changed. Exit code 1."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences), returncode=1)
        self.sentences = sentences


class BadInputError(RefusedError):
    """What was asked for cannot be meant; nothing was changed. Exit code 2."""

    def __init__(self, *sentences: str) -> None:
        super().__init__(*sentences)
        self.returncode = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command found or did: `data` for programs, `text` for people, `code` for the shell."""

    data: Mapping[str, Any]
    text: str
    code: int = 0


class OperatorCommand(BaseCommand):
    """A command that answers. Subclasses give `arguments` and `answer`, and list their `refusals`.

    An exception of `refusals` is an expected "no": its message is the sentence, the code 1.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    needs_schema: ClassVar[bool] = True
    _called_from_command_line = False  # Django sets it
    requires_system_checks = ()  # they would take longer than most of the work

    def arguments(self, parser: CommandParser) -> None:
        """Add the command's own arguments."""

    @abstractmethod
    def answer(self, *args: Any, **options: Any) -> Answer:
        """Do the work. Raises RefusedError, BadInputError or one of `refusals`."""

    def add_arguments(self, parser: CommandParser) -> None:
        self.arguments(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")

    def execute(self, *args: Any, **options: Any) -> str | None:
        """At the shell a refusal is its sentences and its code; code that calls us gets the exception.

        There nothing is done over a schema of another version either: a sentence, and code 3.
        """
        if self._called_from_command_line and self.needs_schema:
            from portal.ops.schema import refuse_unmigrated  # loads all migrations

            refuse_unmigrated()
        try:
            return super().execute(*args, **options)
        except RefusedError as refusal:
            if not self._called_from_command_line:
                raise
            self.stderr.write(str(refusal))
            sys.exit(refusal.returncode)

    def handle(self, *_: Any, **options: Any) -> None:
        wants_json = bool(options.pop("json", False))
        try:
            answer = self._answer(**options)
        except RefusedError as refusal:
            if wants_json:
                self._print({"error": " ".join(refusal.sentences), "errors": list(refusal.sentences)})
            raise
        if wants_json:
            self._print(answer.data)
        elif answer.text:
            self.stdout.write(answer.text)
        if answer.code:
            sys.exit(answer.code)

    def asks(self, *, yes: bool) -> bool:
        """Whether a person has to confirm: at the shell, without --yes. Code that calls us has decided.

        Raises BadInputError where nobody is at a terminal to answer.
        """
        if yes or not self._called_from_command_line:
            return False
        if not sys.stdin.isatty():
            raise BadInputError("This asks for confirmation: add --yes to confirm it in a script.")
        return True

    def confirm(self, question: str) -> None:
        """Ask at the terminal; RefusedError where the answer is no."""
        self.stderr.write(f"{question} [y/N] ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise RefusedError("Nothing was changed.")

    def _answer(self, **options: Any) -> Answer:
        name = type(self).__module__.rpartition(".")[2]
        try:
            with acting_as(through=f"command {name}"):
                return self.answer(**options)
        except self.refusals as error:
            raise RefusedError(sentence(error)) from error
        except (RowsInFilesError, MonthFilesError) as error:
            raise RefusedError(sentence(error)) from error
        except (DataError, OverflowError, UnicodeEncodeError) as error:
            raise BadInputError(
                f"Something that was given is too long, too large or no text: {excerpt(first_line(error))}"
            ) from error
        except OperationalError as error:
            raise RefusedError(f"The database does not answer: {first_line(error)}") from error

    def _print(self, data: Mapping[str, Any]) -> None:
        self.stdout.write(json.dumps(data, default=as_json, ensure_ascii=False))


def as_json(value: object) -> str:
    """Amounts as plain decimal text, instants as ISO 8601 in UTC, dates as dates."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON here.")


def instant_text(moment: datetime) -> str:
    """2017-10-03T12:00:00Z"""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """The first instant of the day in the zone, in UTC: where a billing period anchored on it starts."""
    return periods.midnight(day, zone=zone)


def moment(text: str, zone: ZoneInfo) -> datetime:
    """`2017-10-03` (midnight in `zone`) or `2017-10-03T12:00:00+02:00` as a UTC instant of whole seconds.

    A time without an offset is read in `zone`. Raises BadInputError for anything else, in its reader's language:
    tenants type moments on pages.
    """
    allowed = _("write a date like 2017-10-03 or a moment like 2017-10-03T12:00:00Z.")
    try:
        if len(text) == len("2017-10-03"):
            return midnight(_check_year(date.fromisoformat(text), text), zone)
        read = datetime.fromisoformat(text)
    except ValueError:
        raise BadInputError(
            _("{text} is not a moment; {allowed}").format(text=quoted(text), allowed=allowed)
        ) from None
    if read.tzinfo is None:
        read = read.replace(tzinfo=zone)
    if read.microsecond:
        raise BadInputError(
            _("{text} is not a whole second; {allowed}").format(text=quoted(text), allowed=allowed)
        )
    return _check_year(read, text).astimezone(UTC)


def utc_month(text: str) -> date:
    """`2017-10` as its first day. Raises BadInputError for anything else."""
    try:
        return date(*periods.parse_month(text), 1)
    except ValueError as error:
        raise BadInputError(sentence(error)) from error


def _check_year(day: Day, text: str) -> Day:
    if day.year < FIRST_YEAR:
        raise BadInputError(
            _("{text} is too early: there are days from {year} on.").format(text=text, year=FIRST_YEAR)
        )
    if day.year > LAST_YEAR:
        raise BadInputError(
            _("{text} is too late: there are days up to the year {year}.").format(text=text, year=LAST_YEAR)
        )
    return day


class Progress:
    """One line on a terminal that says how far the work is; silent anywhere else.

    with Progress("Rated", total=74_167) as progress: work(progress=progress.add)
    """

    def __init__(self, what: str, *, total: int | None = None, stream: TextIO | None = None) -> None:
        self.what = what
        self.total = total
        self.stream = stream if stream is not None else sys.stderr
        self.watched = self.stream.isatty()
        self.done = 0
        self._drawn = 0.0

    def add(self, count: int) -> None:
        """That many more are done."""
        self.to(self.done + count)

    def to(self, done: int) -> None:
        """That many are done in all."""
        self.done = done
        if self.watched and time.monotonic() - self._drawn >= REDRAW:
            self._drawn = time.monotonic()
            of = f" of {self.total:,}" if self.total else ""
            self._draw(f"{self.what}: {done:,}{of} ...")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.watched and self._drawn:
            self._draw("")

    def _draw(self, line: str) -> None:
        self.stream.write(f"\r\x1b[K{line}")
        self.stream.flush()
