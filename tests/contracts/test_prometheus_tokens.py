"""Tokens of models from counters of vLLM and LiteLLM: exact sums by hour, account, key and model.

The series have the names and labels that the servers publish: vLLM in `vllm/v1/metrics/loggers.py`
(`vllm:prompt_tokens`, `vllm:generation_tokens`, `vllm:prefix_cache_hits` by `model_name` and `engine`; a counter of
prometheus_client is told with `_total`), LiteLLM 1.80 in `litellm/types/integrations/prometheus.py`
(`litellm_input_tokens_metric` and `litellm_output_tokens_metric` by `hashed_api_key`, `team`, `model` and others;
`litellm_input_cached_tokens_metric` since 1.87).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError, IncompleteHour, UsageFact
from clusters.connectors.findings import Level
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin
from clusters.connectors.prometheus.check import examine
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.sums import MeterUnit
from tests.fakes.prometheus import StandIn
from tests.fakes.prometheus_series import Series

HOUR = 3600
TEN = 1_772_445_600  # 2026-03-02 10:00 UTC
METERS = {"llm-tokens": MeterUnit("llm-tokens", 0, 1_000_000, ("model", "direction"))}
PROMPT, CACHED, WRITTEN = (
    "vllm:prompt_tokens_total",
    "vllm:prefix_cache_hits_total",
    "vllm:generation_tokens_total",
)
OPTIONS: dict[str, Any] = {"pods": False, "tokens": {"server": "vllm", "since": "2026-03-01T00:00Z"}}


@dataclass
class Scrapes:
    """A Prometheus that scrapes each minute, at second 30."""

    series: Series = field(default_factory=Series)

    def server(
        self,
        counted: Mapping[str, Mapping[int, int]],
        *,
        pod: str = "large-0",
        began: int | None = TEN - 20 * HOUR,
        minutes: range = range(-120, 180),
        down: range = range(0),
        job: str = "vllm",
        replica: str = "",
        second: int = 30,
        **labels: str,
    ) -> None:
        """One server of a model. `counted`: by metric what it counts to from a minute after ten on."""
        target = {"job": job, "instance": f"{pod}:8000"}
        target |= {"prometheus_replica": replica} if replica else {}
        own = {**target, "namespace": "vision", "pod": pod, "model_name": "large", "engine": "0", **labels}
        for minute in minutes:
            at = TEN + minute * 60 + second
            self.series.add("up", target, at, int(minute not in down))
            if minute in down:
                continue
            if began is not None:
                self.series.add("process_start_time_seconds", target, at, f"{began}.25")
            for metric, steps in counted.items():
                reached = [value for since, value in sorted(steps.items()) if since <= minute]
                if reached:
                    self.series.add(metric, own, at, reached[-1])

    @contextmanager
    def served(self, now: int) -> Iterator[StandIn]:
        with StandIn(self.series.answer, now=now) as prometheus:
            yield prometheus

    def read(
        self, since: int = TEN, until: int = TEN + 3 * HOUR, now: int = TEN + 3 * HOUR, **options: Any
    ) -> tuple[dict[str, int], PrometheusConnector]:
        """Tokens by `account/user/model/direction@hour`."""
        rows, source = self.rows(since, until, now, **options)
        tokens_by_hour: dict[str, int] = {}
        for row in rows:
            assert isinstance(row, UsageFact)
            assert row.started is not None
            assert row.quantity is not None
            assert row.ended == row.started + HOUR
            dimensions = dict(pair.split("=") for pair in row.gpu_model.split(", "))
            hour = f"{datetime.fromtimestamp(row.started, UTC):%H}"
            tokens_by_hour[
                "/".join(filter(None, (row.account, row.user, dimensions["model"], dimensions["direction"])))
                + f"@{hour}"
            ] = row.quantity
        assert len(tokens_by_hour) == len({row.source_key for row in rows}) == len(rows)
        return tokens_by_hour, source

    def rows(self, since: int, until: int, now: int, **options: Any) -> tuple[list[Any], PrometheusConnector]:
        with self.served(now) as prometheus:
            source = PrometheusConnector(
                Endpoint(base_url=prometheus.url),
                login=PrometheusLogin(),
                options=options_from({**OPTIONS, **options}),
                clock=lambda: now,
                meters=METERS,
            )
            return list(source.usage(since=since, until=until, open_keys=["100@1"])), source


def test_each_token_is_in_one_hour_and_one_direction_and_replicas_add_up() -> None:
    """Two servers; the second was started anew at 10:40, and what it counted since counts from 0."""
    scrapes = Scrapes()
    scrapes.server(
        {PROMPT: {-120: 900, 5: 1_000, 59: 1_007}, CACHED: {-120: 0, 6: 40}, WRITTEN: {-120: 50, 61: 58}}
    )
    scrapes.server({PROMPT: {-120: 5_000, 30: 5_500, 40: 300, 70: 301}}, pod="large-1")

    tokens_by_hour, source = scrapes.read()

    assert tokens_by_hour == {
        "vision/large/input@10": (1_007 - 900) + (500 + 300) - 40,
        "vision/large/cached@10": 40,
        "vision/large/input@11": 1,
        "vision/large/cached@11": 0,  # had some in the hour before: what comes late may have moved it there
        "vision/large/output@11": 8,
    }
    assert source.reading.complete_through == TEN + 2 * HOUR  # 12:50 is the end of no hour that has settled
    assert source.reading.unasked == ["100@1"]  # of pods nothing is read
    assert (source.reading.incomplete, source.reading.notes) == ([], [])
    for since, until in ((TEN, TEN + HOUR), (TEN + HOUR + 900, TEN + 2 * HOUR)):
        again, _ = scrapes.read(since, until)
        assert again.items() <= tokens_by_hour.items()  # whatever is read together, an hour is the same


def test_where_counting_begins() -> None:
    """From 0 for a new process and for a new key of one that was being read; else from the first sample on."""
    scrapes = Scrapes()
    scrapes.server({PROMPT: {-120: 10, 5: 10}}, pod="old")
    scrapes.server({PROMPT: {20: 70}}, pod="old", team="b")  # its label set appears at 10:20, others stay
    scrapes.server({PROMPT: {30: 400}}, pod="new", began=TEN + 29 * 60, minutes=range(30, 180))
    scrapes.server({PROMPT: {30: 10**9, 35: 10**9 + 3}}, pod="found-late", minutes=range(30, 180))
    scrapes.server({PROMPT: {30: 10**6, 35: 10**6 + 5}}, pod="silent", began=None, minutes=range(30, 180))
    relabelled: dict[str, Any] = {"pod": "relabelled", "began": TEN - 20 * HOUR}
    scrapes.server({PROMPT: {-120: 10**8}}, minutes=range(-120, 40), **relabelled)
    scrapes.server({PROMPT: {40: 10**8 + 2, 45: 10**8 + 9}}, minutes=range(40, 180), team="c", **relabelled)

    tokens_by_hour, source = scrapes.read(until=TEN + HOUR)

    assert tokens_by_hour == {"vision/large/input@10": 70 + 400 + 3 + 5 + 7}
    assert source.reading.notes == [
        (
            "3 counters of tokens were there before Prometheus looked at them, or changed their labels: they count "
            "from their first sample on."
        )
    ]


def test_what_was_not_seen_is_incomplete_and_comes_with_the_next_sample() -> None:
    scrapes = Scrapes()
    scrapes.server({PROMPT: {-120: 0, 5: 100, 50: 700, 80: 900}}, down=range(20, 65))

    tokens_by_hour, source = scrapes.read()

    assert tokens_by_hour == {"vision/large/input@10": 100, "vision/large/input@11": 800}
    assert source.reading.incomplete == [
        IncompleteHour(TEN, HOUR, HOUR - (40 * 60 - 30)),
        IncompleteHour(TEN + HOUR, HOUR, HOUR - (5 * 60 + 30)),
    ]
    assert (
        "Counters of tokens were not seen for 2700 s in 2 hours from 2026-03-02 10:00 UTC"
        in source.reading.notes[0]
    )

    gone = (
        Scrapes()
    )  # a server that was taken away is no gap, nor is an hour without any; Prometheus's own is one
    gone.server({PROMPT: {-120: 0, 5: 100}}, minutes=range(-120, 30))
    gone.series.samples.update(_watched(range(-120, 60), range(90, 180)))
    tokens_by_hour, source = gone.read()
    assert tokens_by_hour == {"vision/large/input@10": 100}
    assert source.reading.incomplete == [IncompleteHour(TEN + HOUR, HOUR, HOUR - 29 * 60)]
    assert source.reading.complete_through == TEN + 2 * HOUR

    late = Scrapes()  # behind what came so far, nothing is proved
    late.server({PROMPT: {-120: 0, 5: 100}}, minutes=range(-120, 65))
    _, source = late.read(now=TEN + 5 * HOUR)
    assert source.reading.complete_through == TEN + HOUR


def _watched(*minutes: range) -> dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[int, str]]]:
    other = Series()
    for part in minutes:
        for minute in part:
            other.add("up", {"job": "node", "instance": "n-1"}, TEN + minute * 60 + 30, 1)
    return other.samples


def test_a_server_that_two_jobs_scrape_counts_once() -> None:
    scrapes = Scrapes()
    scrapes.server({PROMPT: {-120: 0, 5: 100, 65: 160}})
    scrapes.server({PROMPT: {-120: 0, 5: 100, 65: 160}}, job="vllm-again", minutes=range(-120, 62))

    tokens_by_hour, _ = scrapes.read(until=TEN + 2 * HOUR)

    assert tokens_by_hour == {"vision/large/input@10": 100, "vision/large/input@11": 60}


@pytest.mark.parametrize(("label", "later"), [("replica", 0), ("replica", 3), ("job", 3)])
def test_a_server_that_is_scraped_twice_does_not_count_anew_when_its_labels_change(
    label: str, later: int
) -> None:
    """Who reads at the other seconds has the new label at once, or minutes later."""
    scrapes = Scrapes()
    for name, second, change in (("a", 30, 40 + later), ("b", 10, 40)):
        same: dict[str, Any] = {label: name, "second": second}
        scrapes.server({PROMPT: {-120: 10**8}}, minutes=range(-120, change), **same)
        scrapes.server({PROMPT: {40: 10**8, 50: 10**8 + 9}}, minutes=range(change, 180), team="c", **same)

    told, source = scrapes.read(until=TEN + HOUR)

    assert told == {"vision/large/input@10": 9}
    assert source.reading.notes[0].startswith("1 counters of tokens were there before")


def test_litellm_tells_the_team_the_key_and_what_was_cached() -> None:
    scrapes = Scrapes()
    key: dict[str, Any] = {
        "hashed_api_key": "db567a0d",
        "team": "vision",
        "model": "meta/large",
        "user": "default_user_id",
    }
    for metric, team, steps in (
        ("litellm_input_tokens_metric_total", "vision", {-120: 0, 5: 1_000}),
        ("litellm_input_cached_tokens_metric_total", "vision", {6: 1_200}),  # more than was read in that hour
        ("litellm_output_tokens_metric_total", "vision", {-120: 0, 5: 30}),
        ("litellm_output_tokens_metric_total", "None", {-120: 0, 5: 7}),
    ):
        scrapes.server({metric: steps}, pod="proxy", job="litellm", **{**key, "team": team})
    litellm = {"server": "litellm", "since": "2026-03-02T10:00Z"}

    tokens_by_hour, _ = scrapes.read(until=TEN + HOUR, tokens=litellm)
    assert tokens_by_hour == {
        "vision/db567a0d/meta/large/cached@10": 1_000,
        "vision/db567a0d/meta/large/output@10": 30,
        "db567a0d/meta/large/output@10": 7,  # a key without a team is of the account ""
    }
    by_key, _ = scrapes.read(
        until=TEN + HOUR, tokens={**litellm, "account_label": "hashed_api_key", "cached": ""}
    )
    assert by_key == {
        "db567a0d/db567a0d/meta/large/input@10": 1_000,
        "db567a0d/db567a0d/meta/large/output@10": 37,
    }
    assert scrapes.read(until=TEN + HOUR, tokens={**litellm, "since": "2026-03-02T11:00Z"})[0] == {}


def test_what_a_meter_cannot_take_is_kept_aside() -> None:
    scrapes = Scrapes()
    scrapes.server({PROMPT: {-120: 0, 5: 100}}, model_name="a;b")
    scrapes.server({PROMPT: {-120: 0, 5: 100}}, pod="x" * 250, namespace="n" * 250)

    rows, _ = scrapes.rows(TEN, TEN + HOUR, TEN + 3 * HOUR)
    (bad,) = [row for row in rows if isinstance(row, BadRow)]
    assert (bad.code, bad.source_key) == ("dimension-text", "tokens/vision//a%3Bb/input/2026-03-02T10Z")
    assert max(len(row.source_key) for row in rows) < 200

    rows, _ = scrapes.rows(TEN, TEN + HOUR, TEN + 3 * HOUR, tokens={**OPTIONS["tokens"], "meter": "words"})
    assert {row.code for row in rows} == {"meter-not-declared"}


def test_test_connection_counts_what_is_there() -> None:
    scrapes = Scrapes()
    scrapes.server({PROMPT: {-120: 0}, WRITTEN: {-120: 0}})
    scrapes.server({PROMPT: {-120: 0}}, pod="lone", namespace="", model_name="small")
    with (
        scrapes.served(TEN + 2 * HOUR) as prometheus,
        PrometheusClient(
            Endpoint(base_url=prometheus.url), PrometheusLogin(), clock=lambda: TEN + 2 * HOUR
        ) as client,
    ):
        findings = [
            [
                (one.level, one.sentence)
                for one in examine(client, options_from(OPTIONS), now=TEN, meters=meters)
            ]
            for meters in (METERS, {}, {"llm-tokens": MeterUnit("llm-tokens", 0, 1, ("model",))})
        ]
    assert findings[0][1:] == [
        (Level.OK, f"{PROMPT} tells of 2 models (large, small), 2 accounts and 0 users in the last hour."),
        (Level.WARN, f'Some series of {PROMPT} have no namespace: their tokens go to the account "".'),
        (Level.WARN, f"There was no {CACHED} in the last hour: no tokens of cached are billed."),
        (Level.OK, f"{WRITTEN} tells of 1 model (large), 1 account and 0 users in the last hour."),
        (Level.OK, "They are sums of the meter llm-tokens."),
    ]
    assert [findings[1][-1], findings[2][-1]] == [
        (Level.FAIL, "No meter is called llm-tokens: all tokens would be kept aside."),
        (Level.FAIL, "The meter llm-tokens has no dimension direction: all tokens would be kept aside."),
    ]


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"pods": False}, "With pods = false the connection reads nothing: say with tokens what it is for."),
        ({"pods": "no"}, "The option pods has to be true or false."),
        ({"tokens": {"server": "vllm"}}, "The option tokens needs the key since."),
        ({"tokens": {"server": "ollama"}}, "The option tokens needs the key since."),
        (
            {"tokens": {"server": "vllm", "since": "2026-03-01T00:30Z"}},
            "tokens.since has to be the beginning",
        ),
        ({"tokens": {"server": "vllm", "since": "soon"}}, "tokens.since has to be the beginning"),
        (
            {"tokens": {**OPTIONS["tokens"], "input": ""}},
            "tokens.input and tokens.output have to name metrics",
        ),
        ({"tokens": {**OPTIONS["tokens"], "output": "a b"}}, "is no name of a metric"),
        ({"tokens": {**OPTIONS["tokens"], "account_label": "a-b"}}, "is no label name"),
        ({"tokens": {**OPTIONS["tokens"], "matcher": "x"}}, "The matcher"),
        ({"tokens": {**OPTIONS["tokens"], "price": "1"}}, "The option tokens has no key"),
        (
            {"tokens": {**OPTIONS["tokens"], "served_by": {"a": "kube"}}},
            "tokens.served_by.a has to be the place",
        ),
        (
            {"tokens": {**OPTIONS["tokens"], "served_by": {"a": "k/x", "b": ["k/x"]}}},
            "Two models of tokens.served_by",
        ),
    ],
)
def test_options_that_cannot_be_meant(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConnectorError) as refused:
        options_from(tables)
    assert sentence in str(refused.value)
