"""The query API over one endpoint: instants and ranges, always by POST, never a part of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Lock, local
from time import sleep
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlencode

from clusters.connectors.base import Connected, ConnectorError
from clusters.connectors.clocks import Clocks, compare
from clusters.connectors.http import Endpoint, Http, TooLargeError, TooSlowError
from clusters.connectors.prometheus import responses
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.responses import Series, TooMuchError

Result = TypeVar("Result")

TIMEOUT = 60  # seconds for one answer; the server is told the same, so that it does not work on in vain
LARGEST = 32 * 2**20  # bytes of one answer: as exact values it takes up to fifteen times as much memory
AT_ONCE = (
    3  # questions that wait for their answers together, of the twenty that a Prometheus works on unless told
)

AGAIN = (1, 2, 4)  # seconds before a question is asked again whose answer failed for the moment
MOST_AGAIN = 20  # times a client asks again: a server that fails more often is to be asked later

# Thanos answers in part, and from downsampled data, unless told not to; all others pass over what they do not know.
WHOLE: Mapping[str, str] = MappingProxyType(
    {"partial_response": "false", "dedup": "true", "max_source_resolution": "0s"}
)


class PrometheusClient(Connected):
    """Queries of one endpoint. Every failure is a `ConnectorError`; `TooMuchError`: ask for a shorter time.

    `parameters` go with every query, beside those that Thanos needs; a value may be a list
    (`{"replicaLabels[]": ["replica"]}`). `clock` gives epoch seconds, for signatures. `remarks` gathers what the server
    said that does no harm. One that has answered and fails for the moment is asked again, a few times, since a sync
    asks many questions and all of them have to be answered. Several threads may ask at once, each over its own
    connection.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        login: PrometheusLogin,
        *,
        clock: Callable[[], int],
        parameters: Mapping[str, str | list[str]] | None = None,
    ) -> None:
        self.http = Http(endpoint, largest=LARGEST)
        self.timeout = min(endpoint.timeout, TIMEOUT)
        self.remarks: list[str] = []
        self._base = endpoint.base_url.strip().rstrip("/")
        self._login = login
        self._clock = clock
        self._more = {**WHOLE, **(parameters or {})}
        self._own = local()
        self._thread_clients: list[Http] = []
        self._lock = Lock()
        self._crew: ThreadPoolExecutor | None = None
        self._crews: list[ThreadPoolExecutor] = []
        self._has_answered = False
        self._again = 0  # times that a question was asked again

    def clocks(self) -> Clocks:
        """The server's own present beside ours."""
        return compare(self._clock, self.now)

    def now(self) -> int:
        """The server's own present, in whole epoch seconds."""
        series = self._series("query", {"query": "time()"})
        value = series[0].value if series else None
        if value is None or not value[1].is_finite():
            raise ConnectorError("clock-missing", retry=True, address=self.http.address)
        return int(value[1])

    def instant(self, query: str, at: int) -> list[Series]:
        """A query at an epoch second: series with `value`, or with `values` for a range selector."""
        return self._series("query", {"query": query, "time": str(at)})

    def range(self, query: str, *, start: int, end: int, step: int) -> list[Series]:
        """A query at start, start + step, … end, both included; seconds."""
        params = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        return self._series("query_range", params)

    def together(self, asking: Iterable[Callable[[], Result]]) -> list[Result]:
        """What each of them gives, in their order, a few of them at work at a time. They must not call this in turn.

        Raises what the first of those that failed raised, once none is at work.
        """
        work = list(asking)
        if len(work) < 2:
            return [one() for one in work]
        self._crew = crew = self._crew or self.threads(AT_ONCE)
        coming = [crew.submit(one) for one in work]
        try:
            return [one.result() for one in coming]
        finally:
            for one in coming:
                one.cancel()
            wait(coming)

    def threads(self, number: int) -> ThreadPoolExecutor:
        """Threads that may ask, until `close`, which waits for what they are at."""
        crew = ThreadPoolExecutor(number, initializer=self._take_up)
        self._crews.append(crew)
        return crew

    def close(self) -> None:
        for crew in self._crews:
            crew.shutdown(cancel_futures=True)
        self._crews.clear()
        self._crew = None
        for http in (self.http, *self._thread_clients):
            http.close()
        self._thread_clients.clear()

    def _series(self, what: str, params: Mapping[str, str]) -> list[Series]:
        failed: ConnectorError | None = None
        for pause in (*AGAIN, None):
            try:
                series = self._request(what, params)
            except (TooMuchError, TooLargeError):
                raise  # asked for less, it answers
            except ConnectorError as error:
                if pause is None or not error.retry or not self._may_ask_again():
                    raise
                failed = error
                sleep(pause)
            else:
                self._has_answered = True
                if failed is not None:
                    self._remark([f"{failed} Asked again, it answered."])
                return series
        raise AssertionError("The last time ends in one of the two ways above.")

    def _may_ask_again(self) -> bool:
        """Not where nothing was answered yet: whoever is down, or is not what it should be, is told of at once."""
        with self._lock:
            self._again += 1
            return self._has_answered and self._again <= MOST_AGAIN

    def _request(self, what: str, params: Mapping[str, str]) -> list[Series]:
        path = f"/api/v1/{what}"
        form = {**params, "timeout": f"{self.timeout}s", **self._more}
        body = urlencode(form, doseq=True).encode()
        headers = self._login.headers(f"{self._base}{path}", body, clock=self._clock)
        try:
            answer = self._http().call("POST", path, content=body, headers=headers, timeout=self.timeout)
        except TooSlowError as error:
            raise TooMuchError(error.code, retry=True, **error.values) from None
        series, remarks = responses.series(answer, self.http.address)
        self._remark(remarks)
        return series

    def _remark(self, remarks: Iterable[str]) -> None:
        with self._lock:
            self.remarks += [remark for remark in remarks if remark not in self.remarks]

    def _http(self) -> Http:
        own: Http = getattr(self._own, "http", self.http)
        return own

    def _take_up(self) -> None:
        """A failure closes the connection that it met, so that no two threads share one."""
        self._own.http = Http(self.http.endpoint, largest=LARGEST)
        with self._lock:
            self._thread_clients.append(self._own.http)
