"""slurmrestd: which version it speaks, one request at a time, and whether an answer is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from clusters.connectors.base import Connected, ConnectorError, Secret
from clusters.connectors.clocks import Clocks, compare
from clusters.connectors.http import Answer, Endpoint, Http, TooLargeError
from clusters.connectors.slurm import decode, faults
from clusters.connectors.slurm.json_stream import Pieces

if TYPE_CHECKING:
    from clusters.connectors.slurm.login import SlurmLogin

OLDEST, NEWEST = 38, 45  # v0.0.38 … v0.0.45: the versions whose answers we know
MODERN = 40  # the first version with lists of state words and right exit codes
_ACCEPT = {"Accept": Secret("application/json")}  # for text some versions answer with a malformed status line
_VERSION = re.compile(r"/slurmdb/v0\.0\.(\d{1,4})/jobs/?")

E = TypeVar("E", bound=decode.Envelope)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Api:
    """What answers: `version` "v0.0.42"; `release` "24.11.3" and `cluster` "lab", "" where it does not say."""

    version: str
    release: str = ""
    cluster: str = ""

    @property
    def number(self) -> int:
        return int(self.version.rpartition(".")[2])

    @property
    def modern(self) -> bool:
        return self.number >= MODERN

    @property
    def is_supported(self) -> bool:
        """Whether answers of this version were read before; a newer one is read as the newest known."""
        return OLDEST <= self.number <= NEWEST


class SlurmRest(Connected):
    """A client of one slurmrestd. Every failure is a `ConnectorError` with a sentence.

    An answer is a success if its status is 200, it is JSON, it has no errors (or only "nothing found"), and
    it has the list that was asked for. Anything else raises; `faults` has the kinds that are told apart.
    """

    def __init__(self, endpoint: Endpoint, login: SlurmLogin, *, clock: Callable[[], int]) -> None:
        self.http = Http(endpoint)
        self.login = login
        self._clock = clock
        self._api: Api | None = None
        self._date: int | None = None  # the clock of whoever gave the newest answer

    @property
    def api(self) -> Api:
        """What `discover` found; asked for first, it discovers."""
        return self._api or self.discover()

    @property
    def discovered(self) -> Api | None:
        """What `discover` found, None before it."""
        return self._api

    def discover(self) -> Api:
        """Asks which versions are offered and chooses the highest that both sides know.

        Where only newer ones are offered it is the oldest of them, and `known` is False: let
        `flags_agree` say whether it can be read. Raises `ConnectorError` if all are too old.
        """
        answer = self._call("GET", "/openapi/v3")
        if answer.status != 200:
            raise self._refusal(answer, "/openapi/v3")
        try:
            spec = decode.specs.read(answer.body)
        except ValueError:
            raise faults.not_json(answer, self.http.address) from None
        offered = {int(match[1]) for path in spec.paths or () if (match := _VERSION.fullmatch(path))}
        self._api = Api(_choice(offered, self.http.address))
        self._look()
        return self._api

    def clocks(self) -> Clocks | None:
        """slurmctld's clock beside ours; where it does not tell it, that of whoever answers, else None."""
        try:
            return compare(self._clock, self._now)
        except ConnectorError:
            return None

    def _now(self) -> int:
        self._date = None
        try:
            value, _ = self.read(self.slurm("diag"), decode.diagnosis, key="statistics")
            second = decode.instant(value.statistics.req_time) if value.statistics else None
        except ConnectorError:  # a proxy may let nothing through but the jobs
            second = None
        second = second or self._date
        if second is None:
            raise ConnectorError("clock-missing", retry=True, address=self.http.address)
        return second

    def slurm(self, rest: str) -> str:
        """The path of a question to slurmctld: `slurm("nodes")` → "/slurm/v0.0.42/nodes"."""
        return f"/slurm/{self.api.version}/{rest}"

    def slurmdb(self, rest: str) -> str:
        """The path of a question to slurmdbd."""
        return f"/slurmdb/{self.api.version}/{rest}"

    def get(self, path: str, params: Mapping[str, str] | None = None, *, key: str = "") -> dict[str, Any]:
        """The whole answer as plain values. `wanted` is the key that a success must have."""
        return self._plain("GET", path, params=params, key=key)

    def post(self, path: str, body: Any, *, key: str = "") -> dict[str, Any]:
        """Sends `body` as JSON; the whole answer as plain values. Status 200 with errors raises too."""
        return self._plain("POST", path, json=body, key=key)

    def delete(self, path: str, params: Mapping[str, str] | None = None, *, key: str = "") -> dict[str, Any]:
        """From v0.0.43 on a cancel that failed is a success here: its `status[].error.code` tells."""
        return self._plain("DELETE", path, params=params, key=key)

    def read(
        self, path: str, reader: decode.Reader[E], *, key: str, params: Mapping[str, str] | None = None
    ) -> tuple[E, Answer]:
        """The answer as the typed value of `reader`, with its bytes and how long it took.

        Raises `faults.UnreadableFormError`, beside the others, if it is JSON of another form.
        """
        answer = self._call("GET", path, params=params)
        if answer.status != 200:
            raise self._refusal(answer, path)
        value = self._read(answer, path, reader, key)
        return value, answer

    def read_jobs(self, path: str, reader: decode.Reader[T], take: Callable[[T], None]) -> None:
        """Gives `take` each of the "jobs" of an answer as it comes; one is held, not the answer.

        Nothing that was given may be believed before this returns: it raises as `read` does, then too.
        """
        pieces = Pieces(reader, take)
        try:
            answer = self._call("GET", path, into=pieces.take)
        except TooLargeError:
            raise TooLargeError(
                "slurm-answer-too-large",
                retry=True,
                address=self.http.address,
                path=path,
                mebibytes=self.http.largest_poured // 2**20,
            ) from None
        if answer.status != 200:
            raise self._refusal(answer, path)
        if isinstance(wrong := pieces.end(), decode.OtherShapeError):
            raise faults.other_form(str(wrong), path, self.http.address)
        if wrong is not None:
            raise faults.not_json(answer, self.http.address)
        self._read(replace(answer, body=pieces.around), path, decode.raw_jobs, "jobs")

    def close(self) -> None:
        self.http.close()

    def _read(self, answer: Answer, path: str, reader: decode.Reader[E], key: str) -> E:
        try:
            value = reader.read(answer.body)
        except decode.NotJsonError:
            raise faults.not_json(answer, self.http.address) from None
        except decode.OtherShapeError as error:
            raise faults.other_form(str(error), path, self.http.address) from None
        self._meet(value.meta)
        self._accept(answer, value, path)
        if key and getattr(value, key) is None:
            raise self._lacking(key, path)
        return value

    def _plain(
        self,
        method: str,
        path: str,
        *,
        key: str,
        params: Mapping[str, str] | None = None,
        json: Any = None,
    ) -> dict[str, Any]:
        answer = self._call(method, path, params=params, json=json)
        if answer.status != 200:
            raise self._refusal(answer, path)
        try:
            envelope = decode.envelopes.read(answer.body)
            value = decode.loose(answer.body)
        except ValueError:
            raise faults.not_json(answer, self.http.address) from None
        self._meet(envelope.meta)
        self._accept(answer, envelope, path)
        if not isinstance(value, dict) or (key and not isinstance(value.get(key), list | dict)):
            raise self._lacking(key, path)
        body: dict[str, Any] = value
        if key:
            body[key] = rows = list(body[key].values() if isinstance(body[key], dict) else body[key])
            if not all(isinstance(row, dict) for row in rows):
                raise self._lacking(key, path)
        return body

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        into: Callable[[bytes], bool] | None = None,
    ) -> Answer:
        headers = self.login.headers(now=self._clock())
        answer = self.http.call(
            method, path, params=params, json=json, headers={**headers, **_ACCEPT}, into=into
        )
        self._date = answer.date
        return answer

    def _accept(self, answer: Answer, envelope: decode.Envelope, path: str) -> None:
        errors = envelope.errors or []
        if any(fault.error_number != faults.EMPTY_RESULT for fault in errors):
            raise self._refusal(answer, path)

    def _refusal(self, answer: Answer, path: str) -> ConnectorError:
        try:
            envelope = decode.envelopes.read(answer.body)
        except ValueError:
            envelope = decode.Envelope()
        self._meet(envelope.meta)
        return faults.refusal(
            answer,
            envelope.errors or [],
            path=path,
            address=self.http.address,
            user=self.login.user,
            expired=self.login.expired(now=self._clock()),
        )

    def _lacking(self, key: str, path: str) -> ConnectorError:
        return ConnectorError("slurm-key-missing", retry=True, address=self.http.address, path=path, key=key)

    def _look(self) -> None:
        """Takes release and cluster from an answer that costs nothing; they come with refusals too."""
        try:
            answer = self._call("GET", self.slurmdb("tres"))
            self._meet(decode.envelopes.read(answer.body).meta)
        except (ConnectorError, ValueError):
            pass  # what is wrong is told by the call that is made for its answer; the release stays unknown until then

    def _meet(self, meta: decode.Meta | None) -> None:
        if meta is not None and self._api is not None:
            slurm = meta.slurm
            self._api = replace(
                self._api,
                release=slurm.release or self._api.release,
                cluster=slurm.cluster or self._api.cluster,
            )


def _choice(offered: set[int], address: str) -> str:
    supported = {number for number in offered if OLDEST <= number <= NEWEST}
    newer = {number for number in offered if number > NEWEST}
    if not offered:
        raise ConnectorError("slurm-no-accounting", retry=False, address=address)
    if not supported and not newer:
        raise ConnectorError("slurm-too-old", retry=False, address=address, version=max(offered))
    return f"v0.0.{max(supported) if supported else min(newer)}"
