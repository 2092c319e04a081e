"""May this job run? As a program of a cluster asks it for whoever submits, with a key that can do nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.admission.check import JobCheck, check_job_of_account
from billing.simulation.quotes import QuoteError
from clusters.connectors.base import UnreadableError, UsageFact
from clusters.connectors.mig import own_shares
from clusters.connectors.shards import largest_shard
from clusters.models import Cluster
from portal.api.answers import as_json
from portal.api.problems import bad_request
from portal.api.resources.quota_checks import JobToCheck, NeedSerializer, WalletNeedSerializer
from portal.api.resources.quotes import SHAPE, unquotable
from portal.api.views import Endpoint
from portal.ops import quotes
from portal.ops.quotas import check_data


class JobOfCluster(JobToCheck):
    """A job that somebody submits on the cluster of the key; `hours` is its time limit."""

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        del fields["cluster"]  # the key has it
        fields["account"] = serializers.CharField(max_length=255, allow_blank=True)
        fields["shards"] = serializers.IntegerField(
            required=False,
            min_value=0,
            max_value=100_000,
            help_text="Slurm's shards of GPUs, instead of `gpus`: the `shares` of the cluster say what one is.",
        )
        return fields


def job_fields(cluster: Cluster, values: Mapping[str, Any]) -> dict[str, str]:
    """As `quotes.job_of` reads them. A shard counts as the largest part of a GPU that it may be: nodes come later."""
    fields = {name: str(values[name]) for name in (*SHAPE, "user") if name in values}
    if not values.get("shards"):
        return fields
    if values.get("gpus"):
        raise bad_request("A job holds GPUs or shards of them: leave one out.", ("/shards", "beside gpus"))
    try:
        of = largest_shard(fields.get("gpu_model", ""), own_shares(cluster.shares, "shares"))
    except UnreadableError:
        detail = (
            f"The shares of {cluster.name} do not say what a shard of this GPU is: add it to them, like "
            'shard = "1/4".'
        )
        raise bad_request(detail, ("/shards", detail)) from None
    share = "{}/{}".format(*of.share)
    return fields | {"gpus": str(values["shards"]), "gpu_model": of.model, "gpu_share": share}


class ClusterJobCheckSerializer(serializers.Serializer[Any]):
    """Whether the job may run now. An account without an owner, or that there is not, may: no quota counts it."""

    may_run = serializers.BooleanField()
    message = serializers.CharField(help_text="For whoever submits, one line a quota; empty where all fits.")
    seconds = serializers.IntegerField(help_text="The time limit that was asked for.")
    longest_seconds = serializers.IntegerField(
        allow_null=True, help_text="The longest time limit with which it may run; 0: none; null: it may run."
    )
    quotas = NeedSerializer(many=True, help_text="Those that the job does not fit into.")
    wallets = WalletNeedSerializer(many=True, help_text="Those that have too little for it.")


class JobChecks(Endpoint):
    """Whether a job of the key's cluster may run now, for a plugin of its scheduler. Nothing is kept or reserved."""

    write_scope = "jobs:check"
    success = 200
    allotment = ("job-checks", 1200)
    serializer = ClusterJobCheckSerializer
    request_serializer = JobOfCluster

    def post(self, request: Any) -> HttpResponse:
        del request
        cluster, values = self.client.key.cluster, self.body()
        assert cluster is not None, "a key with this scope has one"  # noqa: S101 - a constraint says so
        now = self.moment.replace(microsecond=0)
        try:
            job = quotes.job_of(job_fields(cluster, values), started=now)
            check = check_job_of_account(cluster=cluster, job=job, now=now)
        except QuoteError as error:
            raise unquotable(error) from error
        if check is None:
            return as_json(self.representation(empty_answer(job)))
        return as_json(self.representation(beyond(check)))


def empty_answer(job: UsageFact) -> dict[str, Any]:
    """Of a job that nothing counts."""
    seconds = (job.ended or 0) - (job.started or 0)
    return {
        "may_run": True,
        "message": "",
        "seconds": seconds,
        "longest_seconds": None,
        "quotas": [],
        "wallets": [],
    }


def beyond(check: JobCheck) -> dict[str, Any]:
    """The answer with what the job does not fit, and no other quota or wallet of the account."""
    data = check_data(check)
    beyond = {name: [need for need in data[name] if not need["fits"]] for name in ("quotas", "wallets")}
    message = data["message"] if any(beyond.values()) or check.unpriced else ""
    return data | beyond | {"message": message}
