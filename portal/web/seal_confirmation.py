"""What a button of the page of sealed months would do, in figures, before it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from billing.models import SealKind
from billing.queries import sealed_months as reading
from billing.queries.sealed_months import MonthRow
from billing.sealed_months import drop
from portal.sentences import sentence
from portal.web import format as say

READY = "ready"
"""Asks for all months that may be sealed."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question, and what to know before it is answered."""

    act: str
    question: str
    texts: Sequence[str]
    button: str = ""  # empty: it cannot be done, as the last text says
    month: str = ""  # empty: all that are ready
    asks_replaced: bool = False  # whether no older program runs any more


def confirmation(*, act: str, name: str, rows: list[MonthRow], ready: list[MonthRow]) -> Confirmation | None:
    """None where nothing is asked, or it cannot be done any more. `name`: a month such as 2026-03."""
    if act == READY:
        return _all_ready(ready) if ready else None
    row = next((row for row in rows if f"{row.month:%Y-%m}" == name), None)
    if row is None or act not in ASKING:
        return None
    return ASKING[act](row)


def _all_ready(ready: list[MonthRow]) -> Confirmation:
    months = say.counted(len(ready), "month")
    return Confirmation(
        act=READY,
        question=_("Seal {months}?").format(months=months),
        texts=[
            _(
                "{names}: {records}. A worker writes one month after another to files, reads them back and compares "
                "them with the ledger. The rows stay in the database."
            ).format(
                names=", ".join(say.month_name(row.month) for row in reversed(ready)),
                records=say.counted(sum(row.records for row in ready), "usage record"),
            )
        ],
        button=_("Seal {months}").format(months=months),
    )


def _seal(row: MonthRow) -> Confirmation | None:
    if row.name not in {READY, "unproved"}:
        return None
    text = _(
        "{records} are written to files, read back and compared with the ledger. The rows stay in the database."
    )
    return _of(row, SealKind.SEAL, _("Seal {month}?"), [text], _("Seal {month}"))


def _unseal(row: MonthRow) -> Confirmation | None:
    if not row.files:
        return None
    return _of(row, SealKind.UNSEAL, _("Unseal {month}?"), [_unsealing(row)], _("Unseal {month}"))


def _unsealing(row: MonthRow) -> str:
    if row.dropped_at:
        return _(
            "{files} of {size} are all there is of its rows. They are compared with their digests, {records} and all "
            "that belongs to them are loaded back into the database, then the files are set aside: backups of the "
            "database need them."
        )
    if reading.keeps_files(row.month):
        return _(
            "{files} of {size} are compared with their digests. Rows that the database lacks are loaded back, then "
            "the files are set aside: backups of the database from while it was dropped need them."
        )
    return _(
        "{files} of {size} are compared with their digests. Rows that the database lacks are loaded back, then "
        "the files are deleted."
    )


def _drop(row: MonthRow) -> Confirmation | None:
    if row.name != "sealed":
        return None
    texts = [
        _(
            "A worker compares every row with the files, then deletes {records}, their jobs and rated usage from the "
            "database, which frees {tables} of its disk. {files} of {size} are all there is of these rows then: "
            "back them up on another machine."
        ),
        _(
            "Invoices, documents, totals and charts stay. Tenants' pages of jobs, CSV files and evidence of this month "
            "are read from the files. Efficiency, reports and what changed say that its rows are in files, until they "
            "are loaded back. A late record loads the whole month back."
        ),
    ]
    question = _("Drop the rows of {month}?")
    if (blocker := reading.drop_blocker(row.month)) is not None:
        return _of(row, SealKind.DROP, question, [*texts, _("Not now: {why}")], why=sentence(blocker))
    return _of(
        row,
        SealKind.DROP,
        question,
        texts,
        _("Drop the rows of {month}"),
        asks_replaced=drop.is_first(),
    )


def _load(row: MonthRow) -> Confirmation | None:
    if row.dropped_at is None:
        return None
    text = _(
        "{files} of {size} are compared with their digests, {records} and all that belongs to them are loaded back "
        "into the database. It stays sealed, and the files stay: drop the rows again at any time."
    )
    return _of(row, SealKind.LOAD, _("Load the rows of {month}?"), [text], _("Load the rows of {month}"))


def _of(
    row: MonthRow,
    act: str,
    question: str,
    texts: list[str],
    button: str = "",
    *,
    asks_replaced: bool = False,
    why: str = "",
) -> Confirmation:
    values = {
        "month": say.month_name(row.month),
        "files": say.counted(row.files, "file"),
        "size": say.size(row.bytes),
        "tables": say.size(row.table_bytes),
        "records": say.counted(row.records, "usage record") if row.records else _("All usage records"),
        "why": why,
    }
    return Confirmation(
        act=act,
        month=f"{row.month:%Y-%m}",
        question=question.format(**values),
        texts=[text.format(**values) for text in texts],
        button=button.format(**values),
        asks_replaced=asks_replaced,
    )


ASKING: dict[str, Callable[[MonthRow], Confirmation | None]] = {
    SealKind.SEAL: _seal,
    SealKind.UNSEAL: _unseal,
    SealKind.DROP: _drop,
    SealKind.LOAD: _load,
}
