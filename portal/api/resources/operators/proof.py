"""Whether the sums hold that always must, as `prove` says it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.proof import checks, months
from billing.proof.summary import as_data
from portal.api.answers import as_json
from portal.api.resources.exports import PERIOD
from portal.api.resources.operators.endpoint import OperatorEndpoint


class SumSerializer(serializers.Serializer[Any]):
    """Resource-seconds of one cluster: allocated = billed + waived + pending + unassigned."""

    cluster = serializers.CharField()
    resource = serializers.CharField()
    unit = serializers.CharField()
    allocated = serializers.CharField()
    billed = serializers.CharField()
    waived = serializers.CharField()
    pending = serializers.CharField()
    unassigned = serializers.CharField()
    unpriced = serializers.CharField(help_text="Of what is pending.")
    difference = serializers.CharField()
    closes = serializers.BooleanField()


class CheckSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    holds = serializers.BooleanField()
    broken = serializers.ListField(child=serializers.CharField(), help_text="Up to ten places.")


class MonthProofSerializer(serializers.Serializer[Any]):
    """A month as its proof was kept last: by `prove`, or at night, where one is recomputed in turn."""

    month = serializers.CharField()
    computed_at = serializers.DateTimeField()
    recomputed = serializers.BooleanField(
        help_text="Something was written to it since: its part of the sums was recomputed for this answer."
    )
    records = serializers.IntegerField()
    holds = serializers.BooleanField()
    broken = serializers.ListField(child=serializers.CharField(), help_text="What was changed, in words.")


class ProofSerializer(serializers.Serializer[Any]):
    """The fields are those of `prove --json`."""

    month = serializers.CharField(allow_null=True)
    holds = serializers.BooleanField()
    sums = SumSerializer(many=True)
    quarantined = serializers.DictField(child=serializers.IntegerField(), help_text="Rows by cluster.")
    rerating = serializers.IntegerField(help_text="Changes whose usage waits to be rated again.")
    checks = CheckSerializer(many=True)
    months = MonthProofSerializer(many=True, help_text="Every month's last proof, the newest month first.")


class Proof(OperatorEndpoint):
    """Whether every second that was allocated is accounted for exactly once, in a UTC month."""

    serializer = ProofSerializer
    longest_query = "60s"
    parameters = (replace(PERIOD, description="A UTC month."),)

    def get(self, request: Any) -> HttpResponse:
        del request
        year, month = self.query["period"]
        proof = checks.prove(month=date(year, month, 1))
        body = {
            "month": f"{year}-{month:02d}",
            "holds": proof.holds,
            **as_data(proof),
            "months": months.as_data(proof.recomputed),
        }
        return as_json(body)
