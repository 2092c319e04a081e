"""The moment before which all of a cluster's usage was read, when a clock that ran ahead has moved it too far.

It moves forward by itself alone. What stands in the future makes every later pull blind, so that all who depend on it
refuse, until an operator resets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Min, Q

from clusters import ledger
from clusters.connectors.clocks import SKEW
from clusters.messages import SENTENCES
from clusters.models import CapacityInterval, Cluster, Connection, Pull, Telemetry
from portal.core import locks
from portal.core.locks import Work
from portal.errors import CodedError

TOLERANCE = timedelta(seconds=SKEW)  # by which clocks may differ


class WatermarkError(CodedError):
    """The watermark cannot be reset so; the message says why. Nothing was changed."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset does: usage from `to` on is read again. `to` is None where nothing was ever read rightly."""

    cluster: str
    was: datetime
    to: datetime | None

    @property
    def sentence(self) -> str:
        if self.to is None:
            return (
                f"The watermark of {self.cluster} goes back from {utc(self.was)} to none: the next pass begins where "
                "the first one did."
            )
        return (
            f"The watermark of {self.cluster} goes back from {utc(self.was)} to {utc(self.to)}: what lies after that "
            "is read again, what is known already changes nothing, and no month that ends later is closed before."
        )


def is_ahead(mark: datetime | None, *, moment: datetime) -> bool:
    """Whether it lies in the future, beyond what clocks may differ by."""
    return mark is not None and mark > moment + TOLERANCE


@dataclass(frozen=True, slots=True)
class Ahead:
    """A watermark that lies in the future: the fact, a sentence, and what to do, as the beginning of one."""

    fact: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"{self.fact} {self.remedy[0].upper()}{self.remedy[1:]}."


def ahead(cluster: str, mark: datetime | None, *, moment: datetime, whose: str = "") -> Ahead | None:
    """None where it does not lie in the future. `whose` names what has it, where that is not the cluster itself."""
    if mark is None or not is_ahead(mark, moment=moment):
        return None
    return Ahead(
        f"The watermark of {whose or cluster} is {utc(mark)}, which lies in the future (it is {utc(moment)}): a clock "
        "ran ahead, so usage since then may be missing.",
        "set the clock right, then reset the watermark on the cluster's page or with `reset_watermark "
        f"{cluster}`",
    )


def proposed(cluster: Cluster, *, moment: datetime) -> datetime | None:
    """How far passes had read before the first one that ran with a clock ahead of `moment`; None for not at all."""
    passes = Pull.objects.filter(cluster=cluster)
    ahead = Q(started_at__gt=moment + TOLERANCE) | Q(as_of__gt=moment + TOLERANCE)
    first = passes.filter(ahead).aggregate(first=Min("pk"))["first"]
    sound = passes.filter(outcome=Pull.Outcome.DONE, as_of__lte=moment)
    if first is not None:
        sound = sound.filter(pk__lt=first)
    newest: datetime | None = sound.aggregate(newest=Max("as_of"))["newest"]
    return newest


def plan_reset(*, cluster: Cluster, to: datetime | None, moment: datetime) -> Reset:
    """What a reset to that moment would do. Raises WatermarkError."""
    was = Cluster.objects.values_list("complete_through", flat=True).get(pk=cluster.pk)
    if was is None:
        raise WatermarkError("watermark-missing", cluster=cluster.name)
    if to is not None and to > moment:
        raise WatermarkError("reset-to-future", to=utc(to))
    if to is not None and to >= was:
        raise WatermarkError("reset-forward", cluster=cluster.name, watermark=utc(was))
    return Reset(cluster.name, was, to)


def reset(*, cluster: Cluster, to: datetime | None, moment: datetime) -> Reset:
    """Take the watermark back to `to`, with all that passes from the future have left; the cluster is due at once.

    Usage stays: what is read again and is known already changes nothing. Asked again, it says that there is nothing
    to take back. Raises WatermarkError, also while the cluster is being pulled.
    """
    with locks.alone(Work.PULLING, cluster.pk) as ours:
        if not ours:
            raise WatermarkError("pull-under-way", cluster=cluster.name)
        with transaction.atomic():
            ledger.lock(cluster)
            planned = plan_reset(cluster=cluster, to=to, moment=moment)
            Cluster.objects.filter(pk=cluster.pk).update(
                complete_through=to, watermark_reset_from=planned.was, watermark_reset_to=to
            )
            _forget_future_passes(cluster, moment)
            _forget_future_capacity(cluster, moment)
            Connection.objects.filter(cluster=cluster).update(next_pull_at=None, deep_read_at=None)
            Connection.objects.filter(cluster=cluster, last_success_at__gt=moment).update(
                last_success_at=moment
            )
            Telemetry.objects.filter(cluster=cluster, complete_through__gt=moment).update(
                complete_through=to, next_at=None
            )
    return planned


def _forget_future_passes(cluster: Cluster, moment: datetime) -> None:
    """A close believes passes that say how far they read, and pages show the newest first."""
    passes = Pull.objects.filter(cluster=cluster)
    passes.filter(as_of__gt=moment).update(as_of=None)
    for column in ("started_at", "ended_at", "since", "until"):
        passes.filter(**{f"{column}__gt": moment}).update(**{column: moment})


def _forget_future_capacity(cluster: Cluster, moment: datetime) -> None:
    """Nodes were seen at moments that have not come: nothing could be observed before them."""
    second = int(moment.timestamp())
    intervals = CapacityInterval.objects.filter(cluster=cluster)
    intervals.filter(since__gt=second).delete()
    intervals.filter(until__gt=second).update(until=None)


def utc(moment: datetime) -> str:
    """`2026-10-03 07:20 UTC`"""
    return f"{moment:%Y-%m-%d %H:%M} UTC"
