"""Files with the charges of all tenants in a month: requested, followed as operations, and downloaded."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework import serializers

from billing.models import FocusExport, FocusFormat
from billing.reports import focus_exports, focus_files
from billing.reports.focus_exports import FocusExportError
from portal.api import identifiers, parameters
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import IdField, MomentField
from portal.api.problems import bad_request
from portal.api.resources.exports import CSV, month_of
from portal.api.resources.operators.endpoint import OperatorEndpoint
from portal.api.resources.operators.operations import OperationSerializer, of_focus_export


class FocusExportSerializer(serializers.ModelSerializer[FocusExport]):
    """A file with the charges of all tenants in a month, or the request for one."""

    id = IdField("focus")
    period = serializers.SerializerMethodField(help_text="The month in which the billing periods begin.")
    status = serializers.CharField(help_text="`final` or `preliminary`; empty before the file is written.")
    requested_at = MomentField()
    ended_at = MomentField(allow_null=True, help_text="Null: it is not written yet.")
    fetched_at = MomentField(allow_null=True, help_text="When it was downloaded last.")

    class Meta:
        model = FocusExport
        fields = (
            *(
                "id",
                "period",
                "format",
                "status",
                "name",
                "size",
                "requested_by",
                "requested_at",
                "total",
                "done",
            ),
            *("ended_at", "error", "fetched_by", "fetched_at"),
        )

    def get_period(self, row: FocusExport) -> str:
        return f"{row.month:%Y-%m}"


class NewFocusExport(Body):
    period = serializers.CharField(
        max_length=7, help_text="The month in which the billing periods begin, such as 2026-03."
    )
    format = serializers.ChoiceField(choices=[*FocusFormat.values], default=FocusFormat.CSV.value)


class FocusExports(OperatorEndpoint):
    """Files with the charges of all tenants in a month, the newest first. POST has a worker write one: an operation.

    Asked again before that has ended, it is the same operation; later the file is written again. Its `result` is the
    address of the file, which is deleted after seven days.
    """

    serializer = FocusExportSerializer
    created_serializer = OperationSerializer
    request_serializer = NewFocusExport
    success = 202
    refusals = (FocusExportError,)
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(FocusExport.objects.all(), order=("-pk",))

    def post(self, request: Any) -> HttpResponse:
        del request
        values = self.body()
        export = focus_exports.request_export(
            month=_first_day(values["period"]),
            kind=FocusFormat(values["format"]),
            by=self.client.name,
            moment=self.moment.replace(microsecond=0),
        )
        return as_json(of_focus_export(export), status=202)


class FocusExportFile(OperatorEndpoint):
    """The file, once it is written. `ClusterTab-Status` says whether its charges are `final` or `preliminary`."""

    content_type = CSV
    content_types = tuple(focus_files.FORMATS.values())
    refusals = (FocusExportError,)

    def get(self, request: Any, name: str) -> HttpResponseBase:
        del request
        export = FocusExport.objects.get(pk=identifiers.read("focus", name))
        pieces = focus_exports.open_file(
            export, by=self.client.name, moment=self.moment.replace(microsecond=0)
        )
        self.headers["ClusterTab-Status"] = export.status
        return StreamingHttpResponse(
            pieces,
            content_type=focus_files.FORMATS[export.format],
            headers={
                "Content-Disposition": f'attachment; filename="{export.name}"',
                "Content-Length": str(export.size),
            },
        )


def _first_day(text: str) -> date:
    try:
        return date(*month_of(text), 1)
    except ValueError as error:
        wrong = "Write a month as 2026-03."
        raise bad_request(wrong, ("/period", wrong)) from error
