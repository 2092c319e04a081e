"""The history of changes as signed lines of JSON, in the order of commits, for programs that collect it (a SIEM).

Each line is one change, in the canonical form of RFC 8785, with a signature of the operator's key under the rest of it.
It says its commit's number, that of the commit before, and its place among the changes of its commit: so a reader sees
that nothing is missing, and goes on behind any line.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Max

from billing.documents import signing
from billing.models import SigningKey
from portal.core import identifiers
from portal.core.audit.models import AuditCommit, AuditEntry, Exact, as_exact_json
from portal.core.events.bodies import timestamp
from portal.sql_files import Statements

COMMITS_AT_ONCE = 100
LONGEST = 64 << 20  # bytes of a line; what is longer is none of the history
POSITION = re.compile(r"[0-9]{1,18}(\.[1-9][0-9]{0,8})?", re.ASCII)
WRONG_LINES = 20  # that a check names

sql = Statements(__file__, "audit_lines.sql")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Behind a change: the number of its commit and its place there. Before all: nothing."""

    commit: int = 0
    place: int = 0


def lines(*, behind: Position, key: SigningKey) -> Generator[bytes]:
    """All changes that are committed, from the first behind the position on, each with its line end.

    Holds what one commit after the other brings, never more than some rows. Raises VaultError.
    """
    signer = signing.signer(key)
    after = behind.commit - 1 if behind.place else behind.commit
    while commits := _rows(sql.COMMITS, {"after": after, "size": COMMITS_AT_ONCE}):
        transactions, numbers, previous = map(list, zip(*commits, strict=True))
        values = {
            "transactions": transactions,
            "numbers": numbers,
            "previous": previous,
            "lowest": min(transactions),
            "highest": max(transactions),
        }
        with transaction.atomic(), connection.chunked_cursor() as cursor:
            cursor.execute(sql.ENTRIES, values)
            for row in cursor:
                change = _change(row) | {"key": key.name}
                if Position(change["commit"], change["place"]) > behind:
                    yield canonical(change | {"signature": signer(canonical(change))}) + b"\n"
        after = numbers[-1]


def parse_position(text: str) -> Position:
    """`318` is behind all changes of that commit, `318.2` behind the second of them. Raises ValueError."""
    if not POSITION.fullmatch(text):
        raise ValueError("write the number of a commit, or commit.place, of the last line that you have.")
    commit, _, place = text.partition(".")
    return Position(int(commit), int(place or 0))


def position_of(line: bytes) -> Position:
    """Behind this line. Raises ValueError where it is none of ours."""
    try:
        change = json.loads(line)
        commit, place, of = (int(change[name]) for name in ("commit", "place", "of"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("It is no line of the history.") from error
    return Position(commit) if place == of else Position(commit, place)


def is_in_history(line: bytes) -> bool:
    """Whether the change of this line is in the history here: it is not where an older backup was restored since."""
    change = json.loads(line)
    try:
        key, at = identifiers.read("chg", change["id"]), datetime.fromisoformat(change["at"])
    except (KeyError, TypeError, ValueError):
        return False
    entries = AuditEntry.objects.filter(pk=key, at=at).values("transaction")
    return AuditCommit.objects.filter(number=change["commit"], transaction__in=entries).exists()


def newest_commit() -> int:
    """The highest number; 0 before any."""
    return AuditCommit.objects.aggregate(number=Max("number"))["number"] or 0


@dataclass(slots=True)
class Check:
    """What a check of lines saw; `wrong` in sentences, of which only the first are kept."""

    lines: int = 0
    first: Position | None = None
    last: Position | None = None
    wrong: list[str] = field(default_factory=list)

    def object_to(self, sentence: str) -> None:
        if len(self.wrong) < WRONG_LINES:
            self.wrong.append(f"Line {self.lines}: {sentence}")


def check(content: Iterable[bytes], *, keys: Mapping[str, str]) -> Check:
    """Whether each line is as it was signed and nothing between them is missing. `keys`: public keys by their names."""
    result, before = Check(), None
    for line in content:
        result.lines += 1
        try:
            change = json.loads(line, cls=Exact)
            is_whole = canonical(change) == line.removesuffix(b"\n")
            signature = b64decode(change.pop("signature"), validate=True)
            public = b64decode(keys[change["key"]], validate=True)
            current = change["commit"], change["place"], change["of"]
            signed, previous = canonical(change), change["previous"]
        except KeyError as error:
            result.object_to(f"its key or a part of it is not there: {error.args[0]!r:.40}.")
            continue
        except (AttributeError, TypeError, ValueError, RecursionError):
            result.object_to("it is no line of this history.")
            continue
        if not (is_whole and signing.verifies(signed, signature=signature, public=public)):
            result.object_to("it is not what was signed.")
            continue
        if before is not None and not _follows(before, current, previous):
            result.object_to("changes before it are missing, or it stands in another place.")
        before = current
        result.last = Position(current[0], current[1])
        result.first = result.first or result.last
    return result


def canonical(value: Mapping[str, Any]) -> bytes:
    """RFC 8785, of what has no fractions."""
    return json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":")).encode()


def _follows(before: tuple[int, int, int], current: tuple[int, int, int], previous: int) -> bool:
    """Whether (commit, place, of) comes right behind the other one."""
    commit, place, of = before
    if place < of:
        return current == (commit, place + 1, of)
    return previous == commit and current[1] == 1


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _ordered(value[name]) for name in sorted(value, key=lambda name: name.encode("utf-16-be"))
        }
    return [_ordered(one) for one in value] if isinstance(value, list) else value


def _change(row: tuple[Any, ...]) -> dict[str, Any]:
    number, previous, place, of, pk, at, who, through, why, tenant, slug, table, key, operation, *columns = (
        row
    )
    before, after = (None if text is None else as_exact_json(json.loads(text, cls=Exact)) for text in columns)
    return {
        "commit": number,
        "previous": previous,
        "place": place,
        "of": of,
        "id": identifiers.write("chg", pk),
        "at": timestamp(at),
        "who": who,
        "through": through,
        "why": why,
        "tenant": slug or (None if tenant is None else str(tenant)),
        "table": table,
        "row": key,
        "operation": operation,
        "before": before,
        "after": after,
    }


def _rows(statement: str, values: dict[str, int]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return list(cursor)
