"""Long work as operations: progress and result. Their rows are those of the work itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import CloseRun, FocusExport, SealRun
from clusters.models import Pull, UsageFile
from portal.api import identifiers
from portal.api.answers import as_json
from portal.api.problems import not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint

WAITING, RUNNING, SUCCEEDED, FAILED = "waiting", "running", "succeeded", "failed"


class ProgressSerializer(serializers.Serializer[Any]):
    done = serializers.IntegerField()
    total = serializers.IntegerField(allow_null=True, help_text="Null: not known before the end.")


class FailureSerializer(serializers.Serializer[Any]):
    title = serializers.CharField()
    detail = serializers.CharField(help_text="What failed, and what to do.")


class OperationSerializer(serializers.Serializer[Any]):
    """Work that goes on after the answer. Ask again until it is `succeeded` or `failed`."""

    id = serializers.CharField()
    state = serializers.ChoiceField(choices=[WAITING, RUNNING, SUCCEEDED, FAILED])
    progress = ProgressSerializer()
    result = serializers.CharField(allow_null=True, help_text="Address of the result; null before its end.")
    problem = FailureSerializer(allow_null=True)


def of_close(run: CloseRun) -> dict[str, Any]:
    """A close or a preview, by tenants."""
    name = identifiers.write("close", run.pk)
    started = RUNNING if run.started_at else WAITING
    state = FAILED if run.error else SUCCEEDED if run.ended_at else started
    return {
        "id": name,
        "state": state,
        "progress": {"done": run.done, "total": run.total},
        "result": f"/api/v1/closes/{name}/results" if state == SUCCEEDED else None,
        "problem": {"title": "The close was given up", "detail": run.error} if run.error else None,
    }


def of_pull(pull: Pull) -> dict[str, Any]:
    """The reading of a source, by rows."""
    states = {Pull.Outcome.RUNNING: RUNNING, Pull.Outcome.DONE: SUCCEEDED, Pull.Outcome.FAILED: FAILED}
    state = states[Pull.Outcome(pull.outcome)]
    return {
        "id": identifiers.write("pull", pull.pk),
        "state": state,
        "progress": {"done": pull.read, "total": pull.read if pull.ended_at else None},
        "result": f"/api/v1/pulls/{identifiers.write('pull', pull.pk)}" if state == SUCCEEDED else None,
        "problem": {"title": "It broke off", "detail": pull.error} if state == FAILED else None,
    }


def of_file(file: UsageFile) -> dict[str, Any]:
    """The import of a file, by rows."""
    state = FAILED if file.error else SUCCEEDED if file.ended_at else RUNNING if file.started_at else WAITING
    pull = file.pull
    return {
        "id": identifiers.write("file", file.pk),
        "state": state,
        "progress": {
            "done": pull.read if pull else 0,
            "total": pull.read if pull and state == SUCCEEDED else None,
        },
        "result": f"/api/v1/pulls/{identifiers.write('pull', pull.pk)}"
        if pull and state == SUCCEEDED
        else None,
        "problem": {"title": "The file was not imported", "detail": file.error} if file.error else None,
    }


def of_seal_run(run: SealRun) -> dict[str, Any]:
    """What is done with a sealed month."""
    state = FAILED if run.error else SUCCEEDED if run.ended_at else RUNNING if run.started_at else WAITING
    return {
        "id": identifiers.write("seal", run.pk),
        "state": state,
        "progress": {"done": int(state == SUCCEEDED), "total": 1},
        "result": "/api/v1/sealed-months" if state == SUCCEEDED else None,
        "problem": {"title": "It was not done", "detail": run.error} if run.error else None,
    }


def of_focus_export(export: FocusExport) -> dict[str, Any]:
    """The writing of a month's charges, by tenants."""
    started = RUNNING if export.started_at else WAITING
    state = FAILED if export.error else SUCCEEDED if export.ended_at else started
    name = identifiers.write("focus", export.pk)
    return {
        "id": name,
        "state": state,
        "progress": {"done": export.done, "total": export.total if export.started_at else None},
        "result": f"/api/v1/focus-exports/{name}/file" if state == SUCCEEDED else None,
        "problem": {"title": "The file was not written", "detail": export.error} if export.error else None,
    }


KINDS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "close": lambda pk: of_close(CloseRun.objects.get(pk=pk)),
    "file": lambda pk: of_file(UsageFile.objects.select_related("pull").get(pk=pk)),
    "seal": lambda pk: of_seal_run(SealRun.objects.get(pk=pk)),
    "focus": lambda pk: of_focus_export(FocusExport.objects.get(pk=pk)),
    "pull": lambda pk: of_pull(Pull.objects.get(pk=pk)),
}


class Operations(OperatorEndpoint):
    """How far long work is: a close, a preview, the reading of a cluster or a file, the sealing of a month, the
    writing of a file of charges.
    """

    serializer = OperationSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        kind = name.partition("_")[0]
        if kind not in KINDS:
            raise not_found()
        return as_json(KINDS[kind](identifiers.read(kind, name)))
