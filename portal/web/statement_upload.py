"""A statement of the bank that is uploaded: previewed, or taken in, with what the file leaves open said beside it."""

from __future__ import annotations

import re
from datetime import datetime

from django.http import HttpRequest, QueryDict

from billing.bank_transfers import statement_import
from billing.bank_transfers.entities import MOST_BYTES, ReadOptions, StatementError, parse_meanings
from billing.models import TransferState
from portal.web import format as say

OPTIONS = ("account", "currency", "decimal", "dates", "columns", "words", "unchecked")
"""Fields of what a file leaves open."""
FIELDS = {
    "account": "Your account",
    "currency": "Currency",
    "decimal": "Sign before cents",
    "dates": "Order of dates",
    "column": "What columns mean",
    "word": "What words mean",
}
"""By option of `import_statement` the label of the field that says the same."""
AT_ONCE = 200  # new transfers that are matched before the page answers; a worker does the others


def upload(request: HttpRequest, *, by: str, now: datetime, preview: bool) -> str:
    """What came of the file, or would, in a sentence. Raises StatementError, and then nothing was kept."""
    file = request.FILES.get("file")
    if file is None or not file.size:
        raise StatementError("Choose a file: a statement in camt.053, or CSV.")
    if file.size > MOST_BYTES:
        raise StatementError(f"The file is larger than {MOST_BYTES >> 20} MiB: cut it into shorter periods.")
    try:
        done = statement_import.import_statement(
            data=file.read(),
            name=file.name or "",
            by=by,
            moment=now,
            options=options_of(request.POST),
            preview=preview,
            most=AT_ONCE,
        )
    except StatementError as refusal:
        raise StatementError(with_fields(str(refusal))) from refusal
    count = done.states
    parts = [f"{say.counted(len(done.rows), 'new transfer')}, {done.known} known before"]
    parts.append(f"{count[TransferState.BOOKED]} booked, {count[TransferState.WAITING]} to be looked at")
    if count[TransferState.NEW]:
        parts.append(f"{count[TransferState.NEW]} are matched in a moment")
    if done.refused:
        place, reason = done.refused[0]
        parts.append(
            f"{len(done.refused)} in quarantine" + (f", as {place}: {with_fields(reason)}" if preview else "")
        )
    text = "; ".join(parts).removesuffix(".") + "."
    return f"Preview, nothing is kept: {text} Choose the file again to import it." if preview else text


def with_fields(sentence: str) -> str:
    """The sentence with the fields of the page in place of options of the command."""
    return re.sub(rf"--({'|'.join(FIELDS)})\b", lambda option: f"“{FIELDS[option[1]]}”", sentence)


def options_of(posted: QueryDict) -> ReadOptions:
    """What somebody says of a file that it does not say itself, as the options of `import_statement` do."""
    return ReadOptions(
        account=_line(posted, "account"),
        currency=_line(posted, "currency").upper()[:3],
        decimal=mark if (mark := _line(posted, "decimal")) in {",", "."} else "",
        dates=order if (order := _line(posted, "dates")) in {"dmy", "mdy"} else "",
        columns=parse_meanings(_lines(posted, "columns")),
        words=parse_meanings(_lines(posted, "words")),
        unchecked=bool(posted.get("unchecked")),
    )


def _line(posted: QueryDict, name: str) -> str:
    return " ".join(posted.get(name, "").replace("\0", "").split())[:100]


def _lines(posted: QueryDict, name: str) -> list[str]:
    texts = posted.get(name, "").replace("\0", "")[:4000].splitlines()
    return [text.strip() for text in texts if text.strip()]
