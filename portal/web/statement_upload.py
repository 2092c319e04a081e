"""An uploaded bank statement: previewed or imported, with the options for what its file leaves open."""

from __future__ import annotations

import re
from datetime import datetime

from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _

from billing.bank_transfers import statement_import
from billing.bank_transfers.entities import MOST_BYTES, ReadOptions, StatementError, parse_meanings
from billing.models import TransferState
from portal.sentences import sentence
from portal.web import format as say

OPTIONS = ("account", "currency", "decimal", "dates", "columns", "words", "unchecked")
"""Fields of what a file leaves open."""
FIELDS = {
    "account": "Your account",
    "currency": "Currency",
    "decimal": "Decimal separator",
    "dates": "Date order",
    "column": "Column meanings",
    "word": "Word meanings",
}
"""By option of `import_statement` the label of the field that says the same."""
AT_ONCE = 200  # new transfers that are matched before the page answers; a worker does the others


def upload(request: HttpRequest, *, by: str, now: datetime, preview: bool) -> str:
    """The result of the import, or of its preview, in a sentence. Raises StatementError, and then nothing is stored."""
    file = request.FILES.get("file")
    if file is None or not file.size:
        raise StatementError("file-missing")
    if file.size > MOST_BYTES:
        raise StatementError("file-too-large", most=MOST_BYTES >> 20)
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
        raise StatementError("refused", reason=with_fields(sentence(refusal))) from refusal
    count = done.states
    parts = [f"{say.counted(len(done.rows), 'new transfer')}, {done.duplicates} already imported"]
    parts.append(f"{count[TransferState.BOOKED]} matched, {count[TransferState.WAITING]} need review")
    if count[TransferState.NEW]:
        parts.append(f"{count[TransferState.NEW]} still matching")
    if done.refused:
        bad = done.refused[0]
        parts.append(
            f"{len(done.refused)} in quarantine"
            + (f", as {bad.place}: {with_fields(sentence(bad.error))}" if preview else "")
        )
    text = "; ".join(parts).removesuffix(".") + "."
    return (
        _("Preview, nothing imported: {result} Choose the file again to import it.").format(result=text)
        if preview
        else text
    )


def with_fields(text: str) -> str:
    """The sentence with the fields of the page in place of options of the command."""
    return re.sub(rf"--({'|'.join(FIELDS)})\b", lambda option: f"“{FIELDS[option[1]]}”", text)


def options_of(posted: QueryDict) -> ReadOptions:
    """The form's options for what the file leaves open, as those of `import_statement`."""
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
