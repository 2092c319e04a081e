"""Our part of a job's comment: what the job costs, what is left of the budget, and when that was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction

from billing.models import RatedJob, Verdict
from billing.models.quota_terms import SCOPE
from billing.queries.live import OpenJob
from billing.quotas.status import QuotaStatus
from billing.rules.formatting import money_text
from billing.rules.money import Money

_OURS = re.compile(r"\[ClusterTab (\d{4}-\d\d-\d\d \d\d:\d\d) UTC: [^][]*\]")


def written_at(text: str) -> datetime | None:
    """When our part of the comment was written, to the minute; None where there is none."""
    match = _OURS.search(text)
    try:
        return None if match is None else datetime.strptime(match[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    except ValueError:
        return None


def with_part(text: str, part: str, *, moment: datetime) -> str:
    """The comment with `part` as ours; what others have written stays as it is."""
    ours = f"[ClusterTab {moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {re.sub(r'[][]', '', part)}]"
    if _OURS.search(text):
        return _OURS.sub(lambda _: ours, text, count=1)
    return f"{text} {ours}" if text else ours


def part_of(job: OpenJob, statuses: Sequence[QuotaStatus]) -> str:
    """`$12.34 so far, $96.00 at its time limit; budget monthly: $43.20 left`; "" where nothing is known of it."""
    status = _tightest([one for one in statuses if _counts(one, job.job.row)])
    left = (
        ""
        if status is None
        else f"budget {status.quota.name}: {status.text(max(status.left, Fraction(0)))} left"
    )
    return "; ".join(text for text in (_cost(job), left) if text)


def _cost(job: OpenJob) -> str:
    if Verdict.UNPRICED in (job.verdict, job.job.verdict):
        return "no price yet"
    if job.verdict == Verdict.WAIVED and job.job.cost is None:
        return "not charged"
    is_array = "[" in job.job.row.job_id
    limit = "a task at its time limit" if is_array else "at its time limit"
    so_far = _text(job.so_far, "so far") if job.job.row.started is not None else ""
    return ", ".join(text for text in (so_far, _text(job.at_limit, limit)) if text)


def _text(amount: Money | None, when: str) -> str:
    return "" if amount is None else f"{money_text(amount.rounded())} {when}"


def _counts(one: QuotaStatus, row: RatedJob) -> bool:
    """Whether what the job uses is in the quota's scope."""
    quota = one.quota
    return quota.project_id in (None, row.project_id) and all(
        getattr(quota, column) in ("", getattr(row, column)) for column in SCOPE
    )


def _tightest(statuses: Sequence[QuotaStatus]) -> QuotaStatus | None:
    """The one of which the least share is left."""
    return min(statuses, key=lambda one: one.left / one.amount if one.amount else Fraction(-1), default=None)
