"""The query API over one endpoint: instants and ranges, always by POST, never a part of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Endpoint, Http, TooSlowError
from clusters.connectors.prometheus import answers
from clusters.connectors.prometheus.answers import Series, TooMuchError
from clusters.connectors.prometheus.login import PrometheusLogin

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT = 60  # seconds for one answer; the server is told the same, so that it does not work on in vain

# Thanos answers in part, and from downsampled data, unless told not to; all others pass over what they do not know.
WHOLE: Mapping[str, str] = MappingProxyType(
    {"partial_response": "false", "dedup": "true", "max_source_resolution": "0s"}
)


class PrometheusClient:
    """Queries of one endpoint. Every failure is a `ConnectorError`; `TooMuchError`: ask for a shorter time.

    `parameters` go with every query, beside those that Thanos needs; a value may be a list
    (`{"replicaLabels[]": ["replica"]}`). `clock` gives epoch seconds, for signatures. `remarks` gathers what the server
    said that does no harm. `asked` and `received` count queries and bytes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        login: PrometheusLogin,
        *,
        clock: Callable[[], int],
        parameters: Mapping[str, str | list[str]] | None = None,
    ) -> None:
        self.http = Http(endpoint)
        self.timeout = min(endpoint.timeout, TIMEOUT)
        self.remarks: list[str] = []
        self.asked = 0
        self.received = 0
        self._base = endpoint.base_url.strip().rstrip("/")
        self._login = login
        self._clock = clock
        self._more = {**WHOLE, **(parameters or {})}

    def now(self) -> int:
        """The server's own present, in whole epoch seconds."""
        found = self._series("query", {"query": "time()"})
        value = found[0].value if found else None
        if value is None or not value[1].is_finite():
            raise ConnectorError(f"{self.http.address} does not tell its time.", retry=True)
        return int(value[1])

    def instant(self, query: str, at: int) -> list[Series]:
        """A query at an epoch second: series with `value`, or with `values` for a range selector."""
        return self._series("query", {"query": query, "time": str(at)})

    def range(self, query: str, *, start: int, end: int, step: int) -> list[Series]:
        """A query at start, start + step, … end, both included; seconds."""
        told = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        return self._series("query_range", told)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _series(self, what: str, told: Mapping[str, str]) -> list[Series]:
        path = f"/api/v1/{what}"
        form = {**told, "timeout": f"{self.timeout}s", **self._more}
        body = urlencode(form, doseq=True).encode()
        headers = self._login.headers(f"{self._base}{path}", body, clock=self._clock)
        try:
            answer = self.http.call("POST", path, content=body, headers=headers, timeout=self.timeout)
        except TooSlowError as error:
            raise TooMuchError(str(error), retry=True) from None
        self.asked += 1
        self.received += len(answer.body)
        found, remarks = answers.series(answer, self.http.address)
        self.remarks += [remark for remark in remarks if remark not in self.remarks]
        return found
