"""What was done to a scheduler, by whom and why: written before it is done, completed afterwards."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q

from clusters.models.cluster import Cluster
from portal.core.audit import track


class ActKind(models.TextChoices):
    HOLD = "hold", "Hold"
    RELEASE = "release", "Release"
    CANCEL = "cancel", "Cancel"
    REQUEUE = "requeue", "Requeue, held"
    BLOCK = "block", "Block"
    UNBLOCK = "unblock", "Unblock"
    LIMIT = "limit", "Limit"


class ActOutcome(models.TextChoices):
    INTENDED = (
        "intended",
        "Intended",
    )  # about to be sent, or its process died: to be looked at, never sent again
    UNKNOWN = "unknown", "Unknown"  # sent or not, done or not: the scheduler did not answer
    DONE = "done", "Done"  # seen to stand
    FAILED = "failed", "Failed"  # seen not to stand


OPEN = (ActOutcome.INTENDED, ActOutcome.UNKNOWN)

_GUARD = """
IF TG_OP = 'DELETE' THEN
    RAISE EXCEPTION 'What was done to a scheduler is kept for ever.';
END IF;
IF OLD.outcome IN ('done', 'failed') OR NEW.outcome = 'intended'
    OR NEW."user" IS DISTINCT FROM OLD."user"
    OR (NEW.cluster_id, NEW.kind, NEW.target, NEW.who, NEW.why, NEW.before, NEW.intended, NEW.intended_at)
        IS DISTINCT FROM
       (OLD.cluster_id, OLD.kind, OLD.target, OLD.who, OLD.why, OLD.before, OLD.intended, OLD.intended_at) THEN
    RAISE EXCEPTION 'How an act ended is told once, and what it was never changes.';
END IF;
RETURN NEW;
"""


@track(personal=["user"])
class Act(models.Model):
    """One thing done to one job or account of a scheduler."""

    Kind = ActKind
    Outcome = ActOutcome

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="acts")
    kind = models.CharField(max_length=10, choices=ActKind.choices)
    target = models.TextField(
        help_text="`job 17@1772000000` (number @ second of submission) or `account vision`."
    )
    account = models.CharField(max_length=255, blank=True)
    user = models.CharField(
        max_length=255, blank=True, help_text="Of limits: whose in the account; empty: those of the account."
    )
    errand = models.UUIDField(help_text="The same for all acts that were carried out together.")
    who = models.TextField()
    why = models.TextField(blank=True)
    intended_at = models.DateTimeField(help_text="When it was written down, just before it was sent.")
    ended_at = models.DateTimeField(null=True, help_text="When its outcome was told.")
    before = models.JSONField(help_text="What stood before: limits by name, or the states of jobs.")
    intended = models.JSONField(help_text="What should stand afterwards.")
    after = models.JSONField(null=True, help_text="What was read back.")
    outcome = models.CharField(max_length=10, choices=ActOutcome.choices, default=ActOutcome.INTENDED)
    error = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "target", "user"],
                condition=Q(outcome__in=[str(state) for state in OPEN]),
                name="one_act_at_a_time_on_a_target",
            ),
            models.CheckConstraint(
                condition=Q(outcome__in=ActOutcome.values) & Q(kind__in=ActKind.values),
                name="act_is_of_a_known_kind",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["cluster", "account", "kind"], name="acts_on_account")]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="act_is_told_once",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                func=_GUARD,
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.target} on {self.cluster.name}: {self.outcome}"


@track(exclude=["read_back_at"], personal=["user"])
class AccountBlock(models.Model):
    """What the limits of an account, or of a user in it, were before: lifting the block gives exactly that back.

    It stands as long as one of its reasons does.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="account_blocks")
    account = models.CharField(max_length=255)
    user = models.CharField(max_length=255, blank=True, help_text="Who alone is blocked there; empty: all.")
    limits = models.JSONField(
        help_text="Of each limit that was set: what it was (null: none) and what we set, as [8, 0]."
    )
    changed = models.JSONField(
        default=dict,
        help_text="Limits that somebody has changed in the scheduler since, as they are; null: none. Left as they are.",
    )
    read_back_at = models.DateTimeField(null=True, help_text="When it was last compared with the scheduler.")
    blocked_by = models.ForeignKey(Act, on_delete=models.PROTECT, related_name="+")
    lifted_by = models.ForeignKey(Act, on_delete=models.PROTECT, related_name="+", null=True)
    ended_at = models.DateTimeField(
        null=True, help_text="When it was lifted, or was seen never to have taken effect."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "account", "user"],
                condition=Q(ended_at__isnull=True),
                name="account_is_blocked_once_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}/{self.account}"


@track()
class BlockReason(models.Model):
    """Why an account is blocked: an operator's word, an unpaid invoice, a quota. Its act says who asked, and why."""

    block = models.ForeignKey(AccountBlock, on_delete=models.PROTECT, related_name="reasons")
    source = models.CharField(
        max_length=40, help_text="What demands it and alone takes it back: operator, dunning, …"
    )
    submits = models.BooleanField(default=False, help_text="It demands that no job can be submitted either.")
    drains = models.BooleanField(default=False, help_text="It demands that running jobs are ended, too.")
    placed_by = models.OneToOneField(Act, on_delete=models.PROTECT, related_name="+")
    lifted_by = models.ForeignKey(
        Act, on_delete=models.PROTECT, related_name="+", null=True, help_text="The act that takes it back."
    )
    ended_at = models.DateTimeField(
        null=True, help_text="When it was taken back, or was seen never to have taken effect."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["block", "source", "submits", "drains"],
                condition=Q(ended_at__isnull=True),
                name="reason_stands_once_beneath_a_block",
            ),
            models.CheckConstraint(condition=~Q(source=""), name="reason_says_whose_it_is"),
        ]

    def __str__(self) -> str:
        return f"{self.source} ({self.placed_by.why})" if self.placed_by.why else self.source


@track()
class AccountLimit(models.Model):
    """A limit of an account that was set here, and what it was before: another value is another row.

    Beneath a block it is what the account has once the block goes.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="account_limits")
    account = models.CharField(max_length=255)
    name = models.TextField(help_text="As the scheduler calls it: GrpTRES=gres/gpu.")
    value = models.PositiveIntegerField()
    before = models.JSONField(null=True, help_text="What it was before it was ours; null: there was none.")
    set_by = models.ForeignKey(Act, on_delete=models.PROTECT, related_name="+")
    lifted_by = models.ForeignKey(
        Act,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        help_text="The act that changes or ends it.",
    )
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "account", "name"],
                condition=Q(ended_at__isnull=True, lifted_by__isnull=True),
                name="limit_of_an_account_stands_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}/{self.account}: {self.name} {self.value}"
