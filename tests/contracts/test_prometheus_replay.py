"""Months of two real clusters, replayed into a real Prometheus: the GPU-seconds of their published sums, exactly."""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from clusters.connectors.base import UsageFact
from tests.contracts.ledger_rules import Merged
from tests.contracts.prometheus_reading import connector, uid_of, until_of
from tests.contracts.prometheus_replay import DATA, STEP, Pod, Recorded, recorded, replay
from tests.integration.prom_lab import Lab, bare

pytestmark = pytest.mark.skipif(
    not DATA.exists(), reason="The records are absent: put them at ../shared/data."
)
DAY = 86_400
Months = Counter[tuple[str, str]]
"""Thousandths of GPU-seconds by namespace and month."""


def _openb() -> Recorded:
    path = DATA / "k8s" / "openb_pods.csv.gz"
    return recorded("openb", path, begin="2023-01-01T00:00:00Z", end="2023-05-31T00:00:00Z", clipped=False)


def _dlrm() -> Recorded:
    path = DATA / "k8s" / "dlrm_instances.csv.gz"
    return recorded("dlrm", path, begin="2024-07-15T00:00:00Z", end="2024-08-15T00:00:00Z", clipped=True)


def _cut() -> Recorded:
    """Two days of the second, with one in eight of their pods."""
    whole = _dlrm()
    begin, end = whole.begin + 9 * DAY, whole.begin + 11 * DAY
    pods = [
        replace(pod, scheduled=max(pod.scheduled, begin), ended=None if _outlives(pod, end) else pod.ended)
        for pod in whole.pods[::8]
        if pod.scheduled < end and (pod.ended is None or pod.ended > begin)
    ]
    return Recorded("cut", begin, end, pods)


def _outlives(pod: Pod, end: int) -> bool:
    return pod.ended is None or pod.ended >= end


def _published(name: str) -> Months:
    with (DATA / "truth" / "k8s_namespace_month_prorated.csv").open(encoding="utf-8") as file:
        return Counter(
            {
                (row["namespace"], row["period"]): int(row["gpu_milli_seconds"])
                for row in csv.DictReader(file)
                if row["dataset"] == name and int(row["gpu_milli_seconds"])
            }
        )


def _by_month(facts: Iterable[UsageFact]) -> Months:
    sums: dict[tuple[str, str], Fraction] = {}
    for fact in facts:
        assert fact.started is not None
        for month, seconds in _months(fact.started, until_of(fact)):
            key = fact.account, month
            sums[key] = sums.get(key, Fraction(0)) + seconds * fact.gpus * 1000 * Fraction(*fact.gpu_share)
    assert all(total.denominator == 1 for total in sums.values())
    return Counter({key: int(total) for key, total in sums.items() if total})


def _months(begin: int, end: int) -> Iterator[tuple[str, int]]:
    while begin < end:
        at = datetime.fromtimestamp(begin, UTC)
        border = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
        until = min(end, int(border.timestamp()))
        yield f"{at:%Y-%m}", until - begin
        begin = until


def _read(url: str, record: Recorded, piece: int) -> Merged:
    ledger, source = Merged(), connector(url)
    for begin in range(record.begin, record.end, piece):
        until = min(begin + piece, record.end)
        ledger.take(source.usage(since=begin, until=until, open_keys=ledger.open_keys))
        assert source.reading.complete_through == until
        assert not source.reading.missing
    return ledger


@pytest.mark.long
@pytest.mark.parametrize("record", [_openb, _dlrm])
def test_with_completion_times_each_month_has_the_published_gpu_seconds(
    pushed_lab: Lab,
    record: Callable[[], Recorded],
) -> None:
    recording = record()
    with bare(pushed_lab) as url:
        replay(recording, url, completed=True)
        ledger = _read(url, recording, 7 * DAY)
    assert len(ledger.facts) == len(recording.pods)
    assert _by_month(ledger.facts.values()) == _published(recording.name)


@pytest.mark.parametrize(
    "record",
    [_cut, pytest.param(_openb, marks=pytest.mark.long), pytest.param(_dlrm, marks=pytest.mark.long)],
)
def test_without_completion_times_each_pod_is_within_a_scrape_of_the_truth(
    pushed_lab: Lab,
    record: Callable[[], Recorded],
) -> None:
    recording = record()
    with bare(pushed_lab) as url:
        scrapes = replay(recording, url, completed=False)
        facts = {uid_of(fact): fact for fact in _read(url, recording, 7 * DAY).facts.values()}
    early, unseen = [], 0
    for pod in recording.pods:
        ended = recording.end if pod.ended is None else pod.ended
        seen = bisect_left(scrapes, ended) - bisect_left(scrapes, pod.scheduled)
        assert (pod.uid in facts) == (seen > 0), "What lives between two scrapes leaves no trace."
        if not seen:
            unseen += 1
            continue
        fact = facts[pod.uid]
        assert fact.started == pod.scheduled
        assert (fact.ended is None) == (pod.ended is None)
        early.append(ended - until_of(fact))
    assert min(early) >= 0
    assert max(early) <= STEP
    print(
        f"{recording.name}: {len(recording.pods)} pods, {unseen} unseen, early {sum(early) / len(early):.1f} s, "
        f"{max(early)} s"
    )
