"""Windows of any length give the whole set: each row once it has ended, none twice differently, none lost."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clusters.connectors.base import ConnectorError, Row
from clusters.connectors.http import Answer, TooLargeError
from clusters.connectors.slurm import windows as windows_module
from clusters.connectors.slurm.windows import LEAST, MOST, Windows
from tests.contracts.slurm_recorded import NOW, Slurm, a_job, connector, facts, live_jobs
from tests.tiers import examples

SPAN = 200_000


def replayed(slurm: Slurm, *, since: int, until: int = NOW, largest: int = 10**9) -> list[Row]:
    """A pass without a socket: the server's own answers, handed over."""
    source = connector("http://127.0.0.1", now=NOW)

    def call(
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        into: Callable[[bytes], bool] | None = None,
        **_: object,
    ) -> Answer:
        slurm.requests.append((path, params or {}))
        reply = slurm.answer(path, params or {})
        if len(reply.body) > largest:
            raise TooLargeError("Too large.", retry=True)
        if into is not None:
            into(reply.body)
        return Answer(reply.status, reply.kind, reply.body)

    source.rest.http.call = call  # type: ignore[method-assign, assignment]
    rows = list(source.usage(since=since, until=until, open_keys=()))
    assert source.reading.complete_through == min(until, NOW - 60)
    return rows


runs = st.lists(
    st.tuples(st.integers(1, SPAN), st.integers(0, 5000), st.one_of(st.none(), st.integers(0, SPAN))),
    max_size=60,
)


def a_cluster_of(drawn: list[tuple[int, int, int | None]]) -> Slurm:
    jobs, live = [], []
    for number, (ago, wait, length) in enumerate(drawn, start=1):
        submit = NOW - ago
        start = min(submit + wait, NOW)
        end = 0 if length is None else min(start + length, NOW)
        jobs.append(a_job(number, submit=submit, start=start, end=end))
        live.append((number, submit, "RUNNING"))
    return Slurm(jobs=jobs, live=live_jobs(*live))


@given(drawn=runs, first=st.integers(60, 86_400), few=st.integers(0, 20), many=st.integers(1, 40))
@example(drawn=[(100, 0, None), (200_000, 0, 100_000)], first=60, few=0, many=1)
@settings(
    max_examples=examples(25, 500),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_windows_give_every_run_once_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, drawn: list[tuple[int, int, int | None]], first: int, few: int, many: int
) -> None:
    monkeypatch.setattr(windows_module, "FIRST", first)
    monkeypatch.setattr(windows_module, "FEW", few)
    monkeypatch.setattr(windows_module, "MANY", max(many, few))
    monkeypatch.setattr(windows_module, "LEAST", 3000)  # the fewer requests, the faster the test
    rows = replayed(a_cluster_of(drawn), since=NOW - SPAN)
    facts_by_key = facts(rows)
    assert len(rows) == len(facts_by_key) == len(drawn)
    for number, (ago, _, length) in enumerate(drawn, start=1):
        fact = facts_by_key[f"{number}@{NOW - ago}"]
        assert (fact.ended is None) == (length is None)


def test_a_long_catch_up_asks_in_windows_of_a_day() -> None:
    slurm = Slurm()
    assert replayed(slurm, since=NOW - 30 * 86_400) == []
    spans = [
        int(query["end_time"][3:]) - int(query["start_time"][3:]) for _, query in slurm.requests if query
    ]
    assert spans[:6] == [3600, 7200, 14_400, 28_800, 57_600, 86_400]
    assert max(spans[:-1]) == MOST
    assert len(spans) < 40


def test_each_window_begins_where_the_last_one_ended() -> None:
    slurm = Slurm()
    replayed(slurm, since=NOW - 300_000)
    borders = [(query["start_time"], query["end_time"]) for _, query in slurm.requests if query]
    assert borders[0][0] == f"uts{NOW - 300_000}"
    assert [end for _, end in borders[:-1]] == [start for start, _ in borders[1:]]
    assert borders[-1][1] == f"uts{NOW + 60}"


def test_an_answer_that_is_too_large_is_halved_and_nothing_is_lost() -> None:
    begin = NOW - 50_000
    jobs = [a_job(n, submit=begin + n, start=begin + n, end=begin + 1000 + 100 * n) for n in range(1, 400)]
    size = len(json.dumps(jobs[0]))
    rows = replayed(Slurm(jobs=jobs), since=NOW - 60_000, largest=420 * size)
    assert len(facts(rows)) == 399


def test_a_minute_that_is_too_large_names_the_setting_that_helps() -> None:
    """What waits and runs comes in every window: asking for a shorter one does not end it."""
    waiting = [a_job(number, submit=NOW - 50_000) for number in range(1, 100)]
    with pytest.raises(ConnectorError, match="come in every one: set SLURMRESTD_JSON=compact") as caught:
        replayed(Slurm(jobs=waiting), since=NOW - 60_000, largest=20_000)
    assert caught.value.retry


@pytest.mark.parametrize(
    ("ended", "rows", "spent", "length"),
    [
        (5001, 5001, 4000, 1800),  # many
        (3000, 3000, 4000, 3600),  # as it should be
        (3000, 3100, 31_000, 1800),  # slow, and a shorter time would have had less to do
        (100, 100, 400, 7200),  # few
        (10, 30_000, 60_000, 7200),  # what waits and runs makes it slow: a shorter time would not help
        (0, 9000, 8000, 7200),
    ],
)
def test_the_next_window_is_learned_from_the_last(ended: int, rows: int, spent: int, length: int) -> None:
    windows = Windows()
    windows.learn(ended=ended, rows=rows, spent=spent)
    assert windows.length == length


def test_a_length_that_was_too_much_is_not_tried_again() -> None:
    windows = Windows()
    assert windows.shrink()
    windows.learn(ended=0, rows=0, spent=0)
    assert windows.length == 1800
    while windows.shrink():
        pass
    assert windows.length == LEAST
