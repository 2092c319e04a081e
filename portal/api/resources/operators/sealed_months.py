"""Months with usage as they are sealed or may be, and asking a worker to do something with one."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from rest_framework import serializers

from billing.models import SealKind
from billing.queries import sealed_months as reading
from billing.queries.sealed_months import MonthRow
from billing.rules.period import parse_month
from billing.sealed_months import seal_runs
from billing.sealed_months.errors import SealError
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import MomentField
from portal.api.problems import bad_request
from portal.api.resources.operators.endpoint import WritingEndpoint
from portal.api.resources.operators.operations import OperationSerializer, of_seal_run
from portal.sentences import sentence


class SealedMonthSerializer(serializers.Serializer[Any]):
    """A UTC month with usage records."""

    month = serializers.SerializerMethodField(help_text="Such as 2026-03.")
    state = serializers.ChoiceField(
        choices=["damaged", "dropped", "sealed", "changed", "ready", "unproved", "blocked"],
        source="name",
        help_text="`dropped`: its rows stand in its files alone. `changed`: since it was sealed. "
        "`unproved`: sealing proves it first.",
    )
    changed_at = MomentField(help_text="Of the last change before it was sealed, or before now.")
    records = serializers.IntegerField(
        help_text="Of the files; of a month that is not sealed, as it was proved."
    )
    files = serializers.IntegerField(help_text="0: it is not sealed.")
    bytes = serializers.IntegerField(help_text="Of its files.")
    table_bytes = serializers.IntegerField(
        help_text="Of its rows in the database, with their indexes: dropping them frees it."
    )
    sealed_at = MomentField(allow_null=True)
    sealed_by = serializers.CharField(help_text="Empty: it is not sealed, or nobody was named.")
    dropped_at = MomentField(allow_null=True, help_text="Since then its rows stand in its files alone.")
    checked_at = MomentField(allow_null=True, help_text="When the digests of its files were compared last.")
    damages = serializers.ListField(
        child=serializers.CharField(), help_text="Files that are missing or changed, up to ten."
    )
    blockers = serializers.SerializerMethodField(help_text="Why it cannot be sealed, in words.")

    def get_month(self, row: MonthRow) -> str:
        return f"{row.month:%Y-%m}"

    def get_blockers(self, row: MonthRow) -> list[str]:
        return [sentence(blocker) for blocker in row.blockers]


class SealedMonthsSerializer(serializers.Serializer[Any]):
    months = SealedMonthSerializer(many=True, help_text="The newest first.")


class NewSealRun(Body):
    month = serializers.CharField(max_length=7, help_text="A UTC month, such as 2026-03.")
    kind = serializers.ChoiceField(
        choices=[*SealKind.values],
        help_text="`unseal` loads back what the database lacks, then deletes the files, or sets them aside if it "
        "was ever dropped. `check` compares the digests. `drop` empties the tables of a sealed month, `load` fills "
        "them again.",
    )
    all_processes_replaced = serializers.BooleanField(
        default=False,
        help_text="With the first `drop`: every process of release 1.0.0 has ended, on each machine. It would bill "
        "dropped usage again.",
    )


class SealedMonths(WritingEndpoint):
    """Months with usage, sealed or not. POST asks a worker to seal, unseal, check, drop or load one: an
    operation.

    Asked again before that has ended, it is the same operation.
    """

    write_scope = "closes:write"
    serializer = SealedMonthsSerializer
    created_serializer = OperationSerializer
    request_serializer = NewSealRun
    success = 202
    refusals = (SealError,)
    longest_query = "60s"

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = reading.list_rows(moment=self.moment, quiet_months=settings.CLUSTERTAB_SEAL_AFTER_MONTHS)
        return as_json({"months": SealedMonthSerializer(rows, many=True).data})

    def post(self, request: Any) -> HttpResponse:
        del request
        values = self.body()
        run = seal_runs.request_run(
            month=_month(values["month"]),
            kind=SealKind(values["kind"]),
            by=self.client.name,
            moment=self.moment.replace(microsecond=0),
            all_processes_replaced=values["all_processes_replaced"],
        )
        return as_json(of_seal_run(run), status=202)


def _month(text: str) -> date:
    try:
        year, number = parse_month(text)
        return date(year, number, 1)
    except ValueError as error:
        wrong = "Write a month as 2026-03."
        raise bad_request(wrong, ("/month", wrong)) from error
