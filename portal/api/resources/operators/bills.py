"""Providers' bills of rented clusters, streamed to a file and imported before the answer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.reports import bills
from billing.reports.bill_rows import BillError
from clusters.models import Cluster
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.resources.operators.endpoint import WritingEndpoint
from portal.api.resources.operators.files import pieces_of, size_of


class BillSerializer(serializers.Serializer[Any]):
    """What one bill has for the cluster."""

    provider = serializers.CharField()
    account = serializers.CharField()
    period = serializers.DateField(help_text="First day of the billing period, in UTC.")
    currency = serializers.CharField()
    amount = serializers.CharField(help_text="Of all its charges but taxes, in major units: exact.")
    charges = serializers.IntegerField()
    new = serializers.IntegerField(help_text="Charges that were not there before.")
    gone = serializers.IntegerField(help_text="Charges of an earlier delivery that this one does not have.")


class ImportedSerializer(serializers.Serializer[Any]):
    """What the file says that the cluster costs."""

    preview = serializers.BooleanField()
    bills = BillSerializer(many=True)
    taxes = serializers.IntegerField(help_text="Rows left out as taxes.")
    others = serializers.IntegerField(help_text="Rows that were not selected.")


class ClusterBill(WritingEndpoint):
    """Send a provider's bill of a rented cluster as `application/octet-stream`: a FOCUS dataset or an AWS CUR.

    It replaces what an earlier delivery of the same bill said for the same selection; sent again, nothing changes.
    """

    write_scope = "imports:write"
    serializer = ImportedSerializer
    binary = True
    put_success = 200
    write_parameters = (
        parameters.text("gpu_model", "The rows pay for this model alone.", many=False),
        parameters.text("where", "Only rows with this value: Column=Value.", example="SubAccountId=123"),
        parameters.choice("preview", ["true", "false"], "Keep nothing.", many=False, default="false"),
    )
    refusals = (BillError,)

    def put(self, request: Any, name: str, file: str) -> HttpResponse:
        size = size_of(request, file)
        cluster = Cluster.objects.get(name=name)
        preview = self.query["preview"] == "true"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / file.replace("/", "_")
            with path.open("wb") as out:
                out.writelines(pieces_of(request, size))
            imported = bills.import_bills(
                cluster=cluster,
                files=[path],
                gpu_model=self.query["gpu_model"] or "",
                selection=bills.parse_selection(self.query["where"] or ()),
                moment=self.moment.replace(microsecond=0),
                keep=not preview,
            )
        data = {"preview": preview, "bills": [bill.as_data() for bill in imported.bills]}
        return as_json({**data, "taxes": imported.taxes, "others": imported.others})
