"""How a live cluster is reached. Secrets are taken and never given back, as on the page, whose form this fills in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.views.decorators.debug import sensitive_variables
from rest_framework import serializers

from clusters.connection_form import ConnectionForm
from clusters.models import Cluster, ClusterKind, Connection
from clusters.models.connection import SECRETS, WHERE
from portal.api.bodies import Body
from portal.api.fields import MomentField
from portal.api.problems import bad_request, not_found, refused
from portal.api.resources.operators.clusters import ConnectionSerializer
from portal.api.resources.operators.endpoint import WritingEndpoint
from portal.core.outbox import outbox

LINES = ("headers", "aws")
"""Secrets of several values, by name."""


def _secret(help_text: str) -> serializers.CharField:
    return serializers.CharField(
        required=False, allow_null=True, write_only=True, max_length=20_000, help_text=help_text
    )


class ConnectionFields(Body):
    """A connection. A secret that is left out stays as it is, null takes it away."""

    url = serializers.CharField(required=False, default="", allow_blank=True, max_length=500)
    unix_socket = serializers.CharField(required=False, default="", allow_blank=True, max_length=255)
    ca = serializers.CharField(required=False, default="", allow_blank=True, help_text="PEM.")
    client_certificate = serializers.CharField(required=False, default="", allow_blank=True, help_text="PEM.")
    user = serializers.CharField(required=False, default="", allow_blank=True, max_length=100)
    slurm_cluster = serializers.CharField(required=False, allow_blank=True, max_length=100)
    options = serializers.JSONField(required=False)
    first_usage_from = MomentField(required=False, allow_null=True, default=None)
    every = serializers.IntegerField(required=False, default=300, min_value=30, max_value=86_400)
    look_back = serializers.IntegerField(required=False, default=48, min_value=1, max_value=24 * 62)
    coverage_needed = serializers.IntegerField(required=False, min_value=0, max_value=100)
    enabled = serializers.BooleanField(required=False, default=True)
    token = _secret("Slurm: a JWT. Prometheus: a bearer token.")
    jwt_key = _secret("The bytes of jwt_hs256.key in base64.")
    client_key = _secret("PEM.")
    password = _secret("Of the user of a Prometheus.")
    headers = serializers.DictField(
        child=serializers.CharField(), required=False, allow_null=True, write_only=True
    )
    aws = serializers.DictField(
        child=serializers.CharField(), required=False, allow_null=True, write_only=True,
        help_text="region, access_key, secret_key and, where there is one, session_token; or region alone.",
    )  # fmt: skip


class OneConnection(WritingEndpoint):
    """The connection of a cluster. PUT creates or replaces it; secrets are written and never read."""

    write_scope = "clusters:write"
    serializer = ConnectionSerializer
    request_serializer = ConnectionFields
    moving = frozenset({"failures", "last_error", "last_success_at", "next_pull_at"})

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        row = Connection.objects.filter(cluster=Cluster.objects.get(name=name)).first()
        if row is None:
            raise not_found()
        return self.one(row)

    @sensitive_variables()
    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        cluster, values = Cluster.objects.select_for_update().get(name=name), self.body()
        if cluster.kind not in WHERE:
            kinds = " or ".join(repr(kind.value) for kind in WHERE)
            raise refused(f"It has a connection, so its kind has to be {kinds}.")
        row = Connection.objects.filter(cluster=cluster).first()
        if row is None:
            self.match_new()
        else:
            self.match(row)
        row = row or Connection(cluster=cluster)
        row.cluster = cluster
        form = ConnectionForm(_entered(values, row), instance=row, moment=self.moment)
        self._refuse_misfits(cluster, values, form)
        if not form.is_valid():
            raise bad_request("Some of what was sent is not valid; see errors.", *_errors(form))
        form.save()
        outbox.add("billing.tasks.pull_due")
        return self.one(Connection.objects.get(pk=row.pk))

    def _refuse_misfits(self, cluster: Cluster, values: Mapping[str, Any], form: ConnectionForm) -> None:
        for field, value in values.items():
            if value and _form_name(field) not in form.fields:
                sentence = f"A cluster of the kind {ClusterKind(cluster.kind).value} has no use for it."
                raise bad_request(sentence, (f"/{field}", sentence))


def _form_name(name: str) -> str:
    return "base_url" if name == "url" else f"new_{name}" if name in SECRETS else name


@sensitive_variables()
def _entered(values: Mapping[str, Any], row: Connection) -> dict[str, Any]:
    """As the form on the page sends it."""
    data: dict[str, Any] = {}
    for name, value in values.items():
        if value is None or (name == "enabled" and not value):
            continue
        text = "\n".join(f"{key}: {line}" for key, line in value.items()) if name in LINES else value
        data[_form_name(name)] = json.dumps(text) if name == "options" else text
    data["forget"] = [
        name for name in SECRETS if name in values and values[name] is None and getattr(row, name)
    ]
    return data


def _errors(form: ConnectionForm) -> list[tuple[str, str]]:
    pairs = []
    for name, messages in form.errors.items():
        plain = {"base_url": "url", "__all__": ""}.get(name, name.removeprefix("new_"))
        pairs += [(f"/{plain}", str(message)) for message in messages]
    return pairs
