"""What jobs of a cluster may still come to, set aside for them; and the accounts that are blocked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import OperationalError, connection
from django.http import HttpResponse
from rest_framework import serializers

from billing.admission.blocked_accounts import list_blocked_accounts
from billing.admission.reserve import MOST_TASKS, Array, Placement, release_key, reserve_job
from billing.models import Reservation
from billing.models.reservations import LONGEST_KEY
from billing.simulation.quotes import QuoteError
from billing.wallets.entries import WalletError
from clusters.models import Cluster
from portal.api.answers import as_json
from portal.api.fields import MomentField
from portal.api.problems import ProblemError, not_found
from portal.api.resources.job_checks import (
    ClusterJobCheckSerializer,
    JobOfCluster,
    beyond,
    empty_answer,
    job_fields,
)
from portal.api.resources.quotes import unquotable
from portal.api.views import Endpoint
from portal.ops import quotes

PATIENCE = "1500ms"
"""So long is waited for whoever reserves of the same budgets: programs of a cluster wait for the answer."""


class JobToReserve(JobOfCluster):
    """A job that is submitted, or waits, on the cluster of the key; `hours` is the time limit of each task."""

    key = serializers.CharField(
        max_length=LONGEST_KEY, help_text="Yours for this job: one reservation stands under it at a time."
    )
    job_id = serializers.CharField(
        max_length=LONGEST_KEY, required=False, help_text="As the scheduler has it, once it is known."
    )
    tasks = serializers.IntegerField(
        min_value=1, max_value=MOST_TASKS, required=False, help_text="Of an array; 1 for a plain job."
    )
    at_once = serializers.IntegerField(
        min_value=1,
        max_value=MOST_TASKS,
        required=False,
        help_text="Reserve for as many tasks as may run at once (`%8`); left out: for all.",
    )
    lasts = serializers.IntegerField(
        min_value=60,
        max_value=86400,
        required=False,
        help_text="Seconds after which it ends if no `job_id` is given; default 900.",
    )


class ReservationSerializer(ClusterJobCheckSerializer):
    """What is reserved, or why not. An account without an owner may run jobs, and nothing is reserved for it."""

    reserved = serializers.BooleanField(help_text="Whether a reservation stands under the key.")
    key = serializers.CharField(
        help_text="Under which it stands: another one than sent where the job has one already."
    )
    job_id = serializers.CharField(help_text="Empty: not known yet.")
    tasks = serializers.IntegerField()
    tasks_reserved = serializers.IntegerField(help_text="For so many tasks at a time; 0: for none.")
    expires_at = MomentField(allow_null=True, help_text="Null: it lasts as long as its job.")


class BlockedAccountSerializer(serializers.Serializer[Any]):
    account = serializers.CharField()
    refuses = serializers.BooleanField(help_text="No job can be submitted; else no GPU job starts.")
    message = serializers.CharField(help_text="Why, for whoever submits.")


class BlockedAccountsSerializer(serializers.Serializer[Any]):
    """The accounts of the key's cluster that are to be blocked now, whether or not the scheduler can do it."""

    def get_fields(self) -> dict[str, Any]:  # a serializer has `data` itself
        return {"data": BlockedAccountSerializer(many=True)}


class ReservingEndpoint(Endpoint):
    """An address for the programs that run with the scheduler, of the cluster of their key."""

    scope = "jobs:reserve"
    write_scope = "jobs:reserve"
    allotment = ("job-reservations", 3000)

    @property
    def cluster(self) -> Cluster:
        cluster = self.client.key.cluster
        assert cluster is not None, "a key with this scope has one"  # noqa: S101 - a constraint says so
        return cluster


class JobReservations(ReservingEndpoint):
    """Reserve for a job: its worst case is held of every budget and wallet that counts it, or none of it is.

    The same again answers the same; with its `job_id`, it lasts as long as the job. With another shape it takes the
    place of the one before, unless it does not fit: then that one stays, and `may_run` is false. After it was released,
    a job that is requeued is reserved for anew under its key.
    """

    success = 200
    serializer = ReservationSerializer
    request_serializer = JobToReserve
    refusals = (WalletError,)

    def post(self, request: Any) -> HttpResponse:
        del request
        cluster, values = self.cluster, self.body()
        now = self.moment.replace(microsecond=0)
        try:
            job = quotes.job_of(job_fields(cluster, values), started=now)
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])
            placement = reserve_job(
                cluster=cluster,
                key=values["key"],
                job=job,
                array=Array(values.get("tasks", 1), values.get("at_once")),
                job_id=values.get("job_id", ""),
                lasts=timedelta(seconds=values.get("lasts", 900)),
                now=now,
            )
        except QuoteError as error:
            raise unquotable(error) from error
        except OperationalError as error:
            detail = "Others reserve of the same budgets at this moment, and nothing was reserved: ask again."
            raise ProblemError(503, "busy", "Ask again in a moment", detail) from error
        answer = (
            empty_answer(job) if placement is None or placement.check is None else beyond(placement.check)
        )
        return as_json(self.representation(answer | _state(values, placement)))


class OneJobReservation(ReservingEndpoint):
    """DELETE gives free what is reserved under the key of a job."""

    serializer = ReservationSerializer

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        if not release_key(cluster=self.cluster, key=name, now=self.moment.replace(microsecond=0)):
            raise not_found()
        return HttpResponse(status=204)


class BlockedAccounts(ReservingEndpoint):
    """For a file that a scheduler reads at each submission, where it cannot wait for an answer."""

    serializer = BlockedAccountsSerializer

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = list_blocked_accounts(self.cluster, moment=self.moment.replace(microsecond=0))
        data = [{"account": row.account, "refuses": row.refuses, "message": row.text} for row in rows]
        return as_json(self.representation({"data": data}))


def _state(values: dict[str, Any], placement: Placement | None) -> dict[str, Any]:
    row: Reservation | None = placement.reservation if placement is not None else None
    return {
        "reserved": row is not None,
        "key": row.key if row is not None else values["key"],
        "job_id": row.job_id if row is not None else values.get("job_id", ""),
        "tasks": values.get("tasks", 1),
        "tasks_reserved": row.at_once if row is not None else 0,
        "expires_at": row.expires_at if row is not None else None,
    }
