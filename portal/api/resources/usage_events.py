"""`POST usage-events`: usage that a program pushes, as events of CloudEvents 1.0."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from django.http import HttpRequest, HttpResponse
from rest_framework import serializers

from billing.rating import pushed_usage
from billing.rating.pushed_usage import Answer, Became, Pushed
from clusters.connectors import cloud_events
from clusters.models import Cluster, ClusterError
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.json_body import StrictJson
from portal.api.problems import ProblemError, as_response, bad_parameter, bad_request, refused
from portal.api.views import Endpoint

MOST_EVENTS = 1_000
LARGEST_BODY = 5 << 20
NONE_VALID = "No event was taken; results say why of each, and all are in quarantine."
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,40}\Z")


class OneEvent(StrictJson):
    media_type = "application/cloudevents+json"


class Batch(StrictJson):
    media_type = "application/cloudevents-batch+json"


class UsageEventSerializer(Body):
    """An event in structured mode. docs/how-to/push-usage.md has the fields of each type's data."""

    specversion = serializers.ChoiceField(choices=["1.0"])
    id = serializers.CharField(max_length=200, help_text="Of the run; with the source, for ever.")
    source = serializers.CharField(  # type: ignore[assignment]  # the event's own name for it
        max_length=200, help_text="Who sends, as a URI reference."
    )
    type = serializers.ChoiceField(choices=cloud_events.TYPES)
    time = serializers.DateTimeField(help_text="The newest event of a run counts.")
    sequence = serializers.CharField(required=False, help_text="Decides between equal times.")
    data = serializers.DictField()  # type: ignore[assignment]  # the event's own name for it


class RejectionSerializer(serializers.Serializer[Any]):
    pointer = serializers.CharField(help_text="JSON pointer into the event.")
    detail = serializers.CharField()


class ResultSerializer(serializers.Serializer[Any]):
    """Of one event, in the order in which they were sent."""

    status = serializers.ChoiceField(choices=[became.value for became in Became])
    errors = RejectionSerializer(  # type: ignore[assignment]  # as in problem details
        many=True, required=False, help_text="Of a rejected one."
    )


class WarningsSerializer(serializers.Serializer[Any]):
    """How many of the runs and sums that were stored are not billed."""

    unassigned = serializers.DictField(
        child=serializers.IntegerField(), help_text="Nobody owns their account: by account."
    )
    unpriced = serializers.DictField(
        child=serializers.IntegerField(), help_text="No price covers them: by GPU model, sums by meter."
    )
    waived = serializers.DictField(
        child=serializers.IntegerField(), help_text="Sums that their tenant's plan does not charge: by meter."
    )


class PushedSerializer(serializers.Serializer[Any]):
    results = ResultSerializer(many=True)
    warnings = WarningsSerializer()


class UsageEvents(Endpoint):
    """Usage for a cluster of the kind push: one event, or a batch of up to 1,000, each answered by itself.

    What was taken is stored and rated when the answer comes; sent again, it is a duplicate. An empty batch tries
    the key. One event is taken in structured or binary mode of CloudEvents, too.
    """

    write_scope = "usage:push"
    serializer = PushedSerializer
    request_serializer = UsageEventSerializer
    success = 200
    largest_body = LARGEST_BODY
    parser_classes = (OneEvent, Batch, StrictJson)
    batch = Batch.media_type, MOST_EVENTS
    allotment = ("usage-events", 1200)
    write_parameters = (
        parameters.text("cluster", "Name of the cluster that ran it.", many=False, example="tokens"),
    )

    def post(self, request: Any) -> HttpResponse:
        name = self.query["cluster"]
        if name is None:
            raise bad_parameter("cluster", "Name the cluster: ?cluster=NAME.")
        values = _values(request)
        cluster = Cluster.objects.filter(name=name).first()
        if cluster is None:
            raise bad_parameter("cluster", f"There is no cluster {name!r}.")
        try:
            pushed = pushed_usage.push(cluster=cluster, values=values, moment=self.moment)
        except ClusterError as error:
            raise refused(str(error)) from None
        if values and all(answer.became == Became.REJECTED for answer in pushed.answers):
            problem = ProblemError(
                400, "no-valid-event", "No event is valid", NONE_VALID, members=_body(pushed)
            )
            return as_response(problem)  # not raised: what is in quarantine stays
        return as_json(_body(pushed))


def _values(request: Any) -> list[object]:
    """The events of a request, in any of the three modes."""
    data = request.data
    media_type = str(request.content_type).partition(";")[0].strip().lower()
    if media_type == Batch.media_type:
        if not isinstance(data, list):
            raise bad_request("A batch is an array of events.")
        if len(data) > MOST_EVENTS:
            raise ProblemError(
                413, "too-large", "The batch is too large", f"Send at most {MOST_EVENTS} events at once."
            )
        return data
    if media_type == OneEvent.media_type:
        return [data]
    attributes = _attributes(request)
    if "specversion" not in attributes:
        raise bad_request(
            f"Send one event as {OneEvent.media_type}, several as {Batch.media_type}, or one in binary mode with "
            "headers ce-specversion, ce-id and so on."
        )
    return [cloud_events.binary(attributes, data)]


def _attributes(request: HttpRequest) -> dict[str, str]:
    pairs = ((name.lower(), value) for name, value in request.headers.items())
    return {
        name.removeprefix("ce-"): value
        for name, value in pairs
        if name.startswith("ce-") and _ATTRIBUTE.match(name.removeprefix("ce-"))
    }


def _body(pushed: Pushed) -> dict[str, Any]:
    warnings = dataclasses.asdict(pushed.warnings)
    return {"results": [_result(answer) for answer in pushed.answers], "warnings": warnings}


def _result(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = {"status": answer.became.value}
    if answer.rejection is not None:
        result["errors"] = [{"pointer": answer.rejection.pointer, "detail": answer.rejection.row.reason}]
    return result
