"""Acts on schedulers: a preview with a plan, then the same plan carried out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from rest_framework import serializers

from clusters import act_reports
from clusters.connectors.base import ConnectorError
from clusters.models import ActKind, Cluster
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.problems import bad_request, conflict
from portal.api.resources.operators.endpoint import WritingEndpoint

if TYPE_CHECKING:
    from clusters.enforcement_plan import Request


class NewAct(Body):
    kind = serializers.ChoiceField(choices=[kind for kind in ActKind.values if kind != ActKind.LIMIT])
    account = serializers.CharField(
        required=False, default="", max_length=255, help_text="For all kinds but `cancel`."
    )
    user = serializers.CharField(
        required=False, default="", max_length=255, help_text="With `hold` and `release`: their jobs alone."
    )
    job = serializers.IntegerField(
        required=False, min_value=1, max_value=10**18, help_text="The scheduler's number, for `cancel`."
    )
    submit = serializers.BooleanField(
        required=False, default=False, help_text="With `block`: refuse new jobs too, also those without GPUs."
    )
    plan = serializers.CharField(
        required=False, max_length=64, help_text="As the preview named it. Needed without `dry_run=true`."
    )
    why = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=500, help_text="Kept in the history."
    )


class StepSerializer(serializers.Serializer[Any]):
    target = serializers.CharField()
    words = serializers.CharField(help_text="What the step does.")
    outcome = serializers.CharField(allow_null=True, help_text="Null in a preview.")
    error = serializers.CharField(allow_blank=True)
    act = serializers.IntegerField(required=False, allow_null=True, help_text="Its number in the history.")


class ActsSerializer(serializers.Serializer[Any]):
    """A plan, or what became of it. The fields are those of `hold_jobs --json`."""

    cluster = serializers.CharField()
    kind = serializers.CharField()
    plan = serializers.CharField(help_text="Send it to carry out just this.")
    carried_out = serializers.BooleanField()
    steps = StepSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField())


class Acts(WritingEndpoint):
    """Hold, release or cancel jobs, block or unblock an account. Preview it with `dry_run=true`, then send its `plan`.

    Only the plan that was looked at is carried out: 409 where another one would be by now.
    """

    write_scope = "jobs:act"
    serializer = ActsSerializer
    request_serializer = NewAct
    needs_idempotency = True
    beside = True

    @property
    def refusals(self) -> tuple[type[Exception], ...]:  # type: ignore[override]  # loaded when it is needed
        """Of planning, and of the scheduler."""
        from clusters.enforcement_plan import LimitError

        return (LimitError, ConnectorError)

    def post(self, request: Any, name: str) -> HttpResponse:
        from clusters import enforcement_plan, job_control  # the connectors load 5 MiB that others do without

        del request
        cluster, values = Cluster.objects.get(name=name), self.body()
        intent = self._intent(values)
        with enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time())) as port:
            if self.query["dry_run"]:
                plan = enforcement_plan.plan(port=port, request=intent)
                return as_json(act_reports.of_plan(port, plan), status=201)
            if not values.get("plan"):
                sentence = "Send the plan that a request with dry_run=true names."
                raise bad_request(sentence, ("/plan", sentence))
            job_control.tidy(port=port)
            plan = enforcement_plan.plan(port=port, request=intent)
            if values["plan"] != plan.fingerprint:
                raise conflict(
                    f"What would be done now is plan {plan.fingerprint} and not {values['plan']}: look at it "
                    "again with dry_run=true."
                )
            result = job_control.carry_out(
                port=port, plan=plan, who=self.client.name, why=values["why"], exactly=True
            )
            return as_json(act_reports.of_result(port, plan, result), status=201)

    def _intent(self, values: dict[str, Any]) -> Request:
        from clusters.enforcement_plan import OF_ONE_JOB, Request

        kind = ActKind(values["kind"])
        if (kind in OF_ONE_JOB) != ("job" in values):
            sentence = "Name the job with cancel and requeue, and with nothing else."
            raise bad_request(sentence, ("/job", sentence))
        return Request(
            kind=kind,
            account=values["account"],
            user=values["user"],
            job=values.get("job", 0),
            submits=values["submit"],
        )
