"""For other systems: charges as FOCUS, the journal of the general ledger, and the history as signed lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import date
from tempfile import SpooledTemporaryFile
from typing import Any

from django.conf import settings
from django.http import FileResponse, HttpResponseBase

from billing.models import SigningKey
from billing.reports import focus, focus_files, journal
from billing.reports.journal import AccountsError
from billing.rules.period import parse_month, shifted
from portal.api.parameters import TENANT, Parameter, choice
from portal.api.problems import bad_parameter, conflict
from portal.api.views import Endpoint, TenantEndpoint
from portal.core.vault import VaultError
from portal.ops import audit_lines
from portal.ops.audit_lines import Position

CSV = "text/csv; charset=utf-8"
LINES = 1000  # of the history an answer
IN_MEMORY = 1 << 20  # bytes of a file, before it goes to disk


def month_of(text: str) -> tuple[int, int]:
    """Raises ValueError with what to write instead."""
    month = parse_month(text)
    if month[0] >= 2200:
        raise ValueError("write a month from 1970-01 to 2199-12.")
    return month


PERIOD = Parameter(
    "period",
    month_of,
    {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$"},
    "The month in which the billing periods begin.",
    required=True,
    example="2026-03",
)


class Focus(TenantEndpoint):
    """The charges of a tenant in a month, FOCUS 1.2. `ClusterTab-Status` says whether they are `final` or
    `preliminary`.

    Those of all tenants are written by `POST /focus-exports`.
    """

    scope = "invoices:read"
    is_report = True
    whole_tenant = True
    longest_query = "60s"  # the use of an invoice of a million charges is sorted at once
    content_type = CSV
    content_types = tuple(focus_files.FORMATS.values())
    parameters = (
        PERIOD,
        choice("format", [*focus_files.FORMATS], "The kind of file.", many=False, default="csv"),
        TENANT,
    )

    def get(self, request: Any) -> HttpResponseBase:
        del request
        tenant, kind = self.tenant, self.query["format"]
        if tenant is None:
            raise bad_parameter(
                "tenant", "Name the tenant. For a file of all tenants send POST /focus-exports."
            )
        own = self.client.tenant is not None
        dataset = focus.make_dataset(
            tenants=[tenant], month=self.query["period"], moment=self.moment, own=own
        )
        name = focus_files.file_name(dataset, of=tenant.slug, extension=kind)
        self.headers["ClusterTab-Status"] = dataset.status.value
        return _file(focus_files.AS[kind](dataset.charges), name, focus_files.FORMATS[kind])


class Ledger(Endpoint):
    """The journal of a month for the general ledger: debits and credits of all tenants."""

    scope = "ops:read"
    is_report = True
    content_type = CSV
    refusals = (AccountsError,)
    parameters = (replace(PERIOD, description="The month on whose days it happened."),)

    def get(self, request: Any) -> HttpResponseBase:
        del request
        year, month = self.query["period"]
        numbers = journal.numbers_of(settings.CLUSTERTAB_LEDGER_ACCOUNTS)
        found = journal.entries(since=date(year, month, 1), until=date(*shifted((year, month), 1), 1))
        return _file(journal.as_csv(found, numbers), f"ledger-{year}-{month:02d}.csv")


AFTER = Parameter(
    "after",
    audit_lines.parse_position,
    {"type": "string", "pattern": "^[0-9]{1,18}([.][1-9][0-9]{0,8})?$"},
    "`commit` of the last line that you have; `commit.place` where its `place` is below its `of`.",
    default=Position(),
    example="318",
)


class Audit(Endpoint):
    """The history of changes as signed lines of JSON in the order of commits, at most 1,000 of them; none: no more."""

    scope = "audit:read"
    longest_query = "60s"  # one transaction may have changed very many rows
    content_type = "text/plain; charset=utf-8"  # JSON lines have no type that generated clients read
    refusals = (VaultError,)
    parameters = (AFTER,)

    def get(self, request: Any) -> HttpResponseBase:
        del request
        key = SigningKey.objects.filter(until=None).first()
        if key is None:
            raise conflict("No key signs yet: ClusterTab makes it with its first document or export_audit.")
        if self.query["after"].commit > audit_lines.newest_commit():
            raise conflict("This history has no such commit: an older backup may have been restored.")
        with closing(audit_lines.lines(behind=self.query["after"], key=key)) as lines:
            return _file(itertools.islice(lines, LINES), "audit.jsonl", self.content_type)


def _file(pieces: Iterable[bytes], name: str, content_type: str = CSV) -> HttpResponseBase:
    """Read whole before it is sent: a slow reader holds neither a transaction nor a connection."""
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the answer
    for piece in pieces:
        file.write(piece)
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename=name, content_type=content_type)
