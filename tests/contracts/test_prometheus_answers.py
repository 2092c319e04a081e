"""Whatever a Prometheus answers instead of the truth is one sentence, and nothing of the pass is proved."""

from __future__ import annotations

import gzip
from dataclasses import replace
from decimal import Decimal

import pytest

from clusters.connectors.base import ConnectorError, Row, Secret
from clusters.connectors.http import Endpoint, TooLargeError
from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin, PrometheusOptions
from clusters.connectors.prometheus import client as client_module
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, Coverage
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.prometheus.responses import TooMuchError
from clusters.connectors.prometheus.usage_fetch import LONGEST, SETTLE, SHORTEST, UsageFetch
from tests.contracts.prometheus_reading import connector, present, read, through
from tests.fakes.prometheus import Reply, Request, StandIn, error, success
from tests.integration.prom_lab import Lab

NOW = 1_740_700_000


def _client(url: str, timeout: int = 5) -> PrometheusClient:
    return PrometheusClient(Endpoint(base_url=url, timeout=timeout), PrometheusLogin(), clock=lambda: NOW)


def _longest(request: Request) -> int:
    """The longest window of a query, in milliseconds."""
    return max((int(part.partition("ms]")[0]) for part in request.query.split("[")[1:]), default=0)


REFUSALS = [
    (Reply(401, b"Unauthorized\n", "text/plain"), False, "does not know us (HTTP 401): check the user and password"),
    (Reply(403, b"{}"), False, "does not let us read (HTTP 403)"),
    (Reply(404, b"404 page not found", "text/plain"), False, "has no /api/v1/query (HTTP 404): check the path"),
    (Reply(302, b"", "text/html", {"location": "https://sso.example.org/login?x=1"}), False,
     "sends us elsewhere (https://sso.example.org/login), as a login page does"),
    (Reply(200, b"<html>Welcome</html>", "text/html"), False, "answered with text/html instead of JSON"),
    (error(400, "bad_data", "1:5: parse error: unclosed left parenthesis"), False,
     "does not understand a query (HTTP 400); check the matcher and the label names of the connection: 1:5: parse"),
    (error(422, "execution", "found duplicate series for the match group"), False,
     "could not work a query out (HTTP 422): found duplicate series"),
    (error(503, "unavailable", "no store matched"), True, "cannot answer now (HTTP 503): no store matched"),
    (Reply(503, b"upstream connect error", "text/plain"), True, "cannot answer now (HTTP 503)."),
    (Reply(429, b"slow down", "text/plain"), True, "limits how often it is asked (HTTP 429)"),
    (error(429, "too_many_requests", "the request has been rejected"), True, "limits how often it is asked"),
    (Reply(200, b'{"status":"success","data":{"resultType":"vector","result":[{"met'), True, "JSON that is cut off"),
    (Reply(200, b'{"status":"success","data":{"resultType":"vector","result":[]', breaks_off=True), True,
     "broke its answer off"),
    (Reply(200, gzip.compress(gzip.compress(b" " * 2**20)), headers={"content-encoding": "gzip, gzip"}), True,
     "sent an answer that is compressed more than once, which is not read"),
    (success([], "matrices"), True, "is not what the query API documents"),
    (Reply(200, b'{"status":"success"}'), True, "is not what the query API documents"),
    (success([{"metric": {}, "value": [1, "one"]}]), True, "is not what the query API documents"),
    (success(warnings=["receive series from store: context deadline exceeded"]), True,
     "answered with a warning, so its answer may be incomplete and nothing of it is kept: receive series"),
]  # fmt: skip


@pytest.mark.parametrize(("response", "retry", "sentence"), REFUSALS)
def test_each_refusal_is_one_sentence_and_says_whether_to_try_again(
    response: Reply, retry: bool, sentence: str
) -> None:
    with StandIn(lambda _: response) as prometheus, _client(prometheus.url) as client:
        with pytest.raises(ConnectorError) as refusal:
            client.instant("up", NOW)
        assert refusal.value.retry is retry
        assert sentence in str(refusal.value)
        assert str(refusal.value).startswith(client.http.address)


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (error(422, "execution", "query processing would load too many samples into memory in query execution"),
         "more samples than --query.max-samples allows"),
        (error(503, "timeout", "query timed out in expression evaluation"), "its own time limit (--query.timeout)"),
        (error(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing"),
         "at most 11,000 points of a series in one answer"),
        (error(422, "execution", "the query time range exceeds the limit (query length: 744h, limit: 721h)"),
         "has a limit on what one query may ask for"),
        (Reply(200, b"", waits=3), "gave no whole answer within 1 s"),
    ],
)  # fmt: skip
def test_what_asking_for_less_would_help_is_told_apart(response: Reply, sentence: str) -> None:
    with StandIn(lambda _: response) as prometheus, _client(prometheus.url, timeout=1) as client:
        with pytest.raises(TooMuchError, match=r"\w") as refusal:
            client.instant("up", NOW)
        assert sentence in str(refusal.value)


def test_a_real_server_refuses_too_many_points_and_broken_queries(pushed_lab: Lab) -> None:
    with _client(pushed_lab.url) as client:
        with pytest.raises(TooMuchError, match="11,000 points"):
            client.range("up", start=pushed_lab.base, end=pushed_lab.base + 96 * 3600, step=30)
        with pytest.raises(ConnectorError, match="does not understand a query"):
            client.instant("sum(", pushed_lab.base)
        with pytest.raises(ConnectorError, match="could not work a query out"):
            client.instant('max_over_time({__name__=~".+"}[1h])', pushed_lab.base + 36 * 3600)
        assert client.now() > pushed_lab.end


def test_values_are_exact() -> None:
    values = [[NOW + 0.402, "0.045220"], [NOW + 30.402, "+Inf"], [NOW + 60, "NaN"], [NOW + 90, "1e-7"]]
    with (
        StandIn(lambda _: success([{"metric": {"uid": "u"}, "values": values}], "matrix")) as prometheus,
        _client(prometheus.url) as client,
    ):
        (one,) = client.instant("m[2m]", NOW)
    assert one.metric == {"uid": "u"}
    assert one.values[0] == (Decimal("1740700000.402"), Decimal("0.045220"))
    assert one.values[1][1].is_infinite()
    assert one.values[2][1].is_nan()
    assert one.values[3][1] == Decimal("0.0000001")


def test_every_query_asks_thanos_for_all_of_it_and_carries_what_the_operator_adds() -> None:
    with StandIn(lambda _: success()) as prometheus:
        options = PrometheusOptions(parameters={"replicaLabels[]": ["replica", "rule_replica"]})
        source = PrometheusConnector(
            Endpoint(base_url=prometheus.url + "/", headers={"X-Scope-OrgID": Secret("a|b")}),
            login=PrometheusLogin(), options=options, clock=lambda: NOW,
        )  # fmt: skip
        with pytest.raises(ConnectorError, match="has no series of kube-state-metrics"):
            list(source.usage(since=NOW - 7200, until=NOW - 3600, open_keys=()))
        assert prometheus.requests
        for request in prometheus.requests:
            assert request.form["partial_response"] == ["false"]
            assert request.form["dedup"] == ["true"]
            assert request.form["max_source_resolution"] == ["0s"]
            assert request.form["replicaLabels[]"] == ["replica", "rule_replica"]
            assert request.headers["x-scope-orgid"] == "a|b"


def test_a_base_url_may_have_a_path() -> None:
    with StandIn(lambda _: success(), prefix="/prometheus") as prometheus, _client(prometheus.url) as client:
        assert client.instant("up", NOW) == []


def test_remarks_that_do_no_harm_are_told_and_the_answer_counts() -> None:
    remark = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "x" (1:6)'
    with StandIn(lambda _: success(infos=[remark])) as prometheus, _client(prometheus.url) as client:
        client.instant("up", NOW)
        client.instant("up", NOW)
        assert client.remarks == [remark]


def test_a_pass_that_fails_in_its_midst_proves_nothing(
    pushed_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real answers, until the fifth question, which is asked again in vain."""
    monkeypatch.setattr(client_module, "AGAIN", (0, 0, 0))
    fails = True
    with _client(pushed_lab.url) as real:

        def answer(request: Request) -> Reply:
            if fails and len(prometheus.requests) >= 5:
                return success(warnings=["some chunks could not be read"])
            form = {name: values[0] for name, values in request.form.items()}
            path = f"/api/v1/{request.what}"
            back = real.http.call(
                "POST",
                path,
                content=request.body,
                headers=PrometheusLogin().headers("", b"", clock=lambda: NOW),
            )
            assert form["timeout"]
            return Reply(back.status, back.body)

        with StandIn(answer, now=pushed_lab.end) as prometheus:
            source = connector(prometheus.url)
            rows: list[Row] = []
            with pytest.raises(ConnectorError, match="warning") as refusal:
                rows += source.usage(since=pushed_lab.base, until=pushed_lab.base + 7200, open_keys=())
            assert refusal.value.retry
            assert rows == []
            assert source.reading.complete_through is None
            fails = False
            facts = list(source.usage(since=pushed_lab.base, until=pushed_lab.base + 7200, open_keys=()))
            assert facts
            assert source.reading.complete_through == pushed_lab.base + 7200


def test_a_window_that_is_too_much_for_the_server_is_read_in_shorter_ones(pushed_lab: Lab) -> None:
    until = pushed_lab.base + 40 * 3600
    with _client(pushed_lab.url) as real:

        def answer(request: Request) -> Reply:
            if _longest(request) > 8 * 3_600_000:
                return error(422, "execution", "query processing would load too many samples into memory")
            return through(real.http, request)

        with StandIn(answer, now=until + 700) as prometheus:
            cut, source = read(prometheus.url, pushed_lab.base, until)
            assert source.reading.complete_through == until
    whole, _ = read(pushed_lab.url, pushed_lab.base, until)
    assert {fact.source_key: fact for fact in cut} == {fact.source_key: fact for fact in whole}


def test_a_window_whose_answer_would_fill_the_memory_is_read_in_shorter_ones(pushed_lab: Lab) -> None:
    until = pushed_lab.base + 40 * 3600
    with _client(pushed_lab.url) as real:

        def answer(request: Request) -> Reply:
            response = through(real.http, request)
            return (
                replace(response, body=response.body + b" " * 2**25)
                if _longest(request) > 8 * 3_600_000
                else response
            )

        with StandIn(answer, now=until + 700) as prometheus:
            cut, source = read(prometheus.url, pushed_lab.base, until)
            assert source.reading.complete_through == until
            with _client(prometheus.url) as asking, pytest.raises(TooLargeError, match="more than 32 MiB"):
                asking.instant("max_over_time(kube_pod_info[86399999ms])", until)
    whole, _ = read(pushed_lab.url, pushed_lab.base, until)
    assert {fact.source_key: fact for fact in cut} == {fact.source_key: fact for fact in whole}


def test_an_open_run_is_looked_for_as_far_back_as_the_server_lets_us(pushed_lab: Lab) -> None:
    pod = next(pod for pod in pushed_lab.truth["pods"] if pod["pod"] == "gap-end-deleted")
    key = f"{pod['uid']}/main/nvidia_com_gpu"
    with _client(pushed_lab.url) as real:

        def answer(request: Request) -> Reply:
            if _longest(request) > 10 * 86_400_000:
                return error(422, "execution", "the query time range exceeds the limit (limit: 10d)")
            return through(real.http, request)

        with StandIn(answer, now=pushed_lab.end) as prometheus:
            facts, _ = read(prometheus.url, pushed_lab.end - 3600, pushed_lab.end - 600, open_keys=[key])
    assert [fact.state for fact in facts if fact.source_key == key] == ["Unknown (estimated end)"]


def test_a_server_that_refuses_even_the_shortest_window_is_told_of() -> None:
    refused = error(422, "execution", "query processing would load too many samples into memory")
    with StandIn(lambda _: refused) as prometheus:
        with pytest.raises(TooMuchError, match="max-samples"):
            read(prometheus.url, NOW - 86_400, NOW)
        assert len(prometheus.requests) == 7  # 24 h, 12, 6, 3, 1.5 h, 45 min, 22.5 min


def test_of_a_hole_in_short_windows_what_was_asked_for_is_one_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = 1_740_700_800
    since, until = hour + 3000, hour + HOUR  # the hour is read from its begin, for its utilisation

    def watch(*_: object, since: int, until: int) -> Coverage:
        if SHORTEST + SETTLE < until - since < LONGEST:
            raise TooMuchError("too many samples", retry=True)
        return Coverage((), 60_000)

    monkeypatch.setattr("clusters.connectors.prometheus.usage_fetch.watch", watch)
    answer = success([{"metric": {}, "value": [until, "1"]}])
    with StandIn(lambda _: answer, now=until + 20 * LONGEST) as prometheus, _client(prometheus.url) as client:
        sweep = UsageFetch(client, Queries(PrometheusOptions()))
        assert list(sweep.rows(since=since, until=until, open_keys=(), now=until + 20 * LONGEST)) == []
    assert (sweep.gaps, sweep.complete_through) == ([(since, until)], until)


def test_nobody_there_is_one_sentence() -> None:
    with StandIn(lambda _: success()) as prometheus:
        url = prometheus.url
    with pytest.raises(ConnectorError, match="Nothing answers at") as refusal:
        connector(url).client.now()
    assert refusal.value.retry
    assert "slurm" not in str(refusal.value).lower()


def test_the_last_ten_minutes_of_prometheus_own_time_are_left_to_settle(pushed_lab: Lab) -> None:
    now = pushed_lab.base + 30 * 3600
    with present(pushed_lab.url, now) as url:
        facts, source = read(url, now - 3600, now + 7200)  # our clock is two hours ahead
        assert source.reading.complete_through == now - 600
        assert facts
        facts, source = read(url, now - 60, now)  # all of it has yet to settle
        assert source.reading.complete_through == now - 600
        assert all(fact.ended is None for fact in facts)
