"""A strict, stateful stand-in of slurmrestd on 127.0.0.1, for what no package here can run.

The answers' shapes are those of the recorded ones; what each version does differently with a write is
spelled out in `docs/how-to/connect-slurm.md`. Tokens are verified as Slurm does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import jwt

from tests.fakes import slurm_shapes as shapes
from tests.fakes.slurm_http import KEY, Answer, SlurmHttp
from tests.fakes.slurm_world import Job, SlurmRefusalError, World

RELEASES = {38: "22.05.8", 39: "23.02.7", 40: "23.11.11", 42: "24.11.7", 44: "25.11.4", 45: "26.05.5"}
ASSOCIATION_KEYS = {"account", "cluster", "user", "partition", "max"}
OWN_LIMITS = ("without_parent_limits", "Exclude limits from parents")


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass
class StandIn:
    """`with StandIn(44) as slurm: …` serves `slurm.url`; `slurm.world` is what it knows."""

    minor: int
    world: World = field(default_factory=World)
    now: int = 1_772_600_000  # the server's own clock
    clusters: tuple[str, ...] = ("lab",)
    tracked: tuple[str, ...] = ("gres/gpu", "gres/gpu:a100")  # AccountingStorageTRES
    gres: str = "gpu:a100:4"  # of its one node
    private: bool = False  # PrivateData=jobs
    tells_time: bool = True  # a proxy before it lets GET /slurm/*/diag through
    down: set[str] = field(default_factory=set)  # "slurmdbd", "slurmctld"
    loses: bool = False  # writes come to nothing, and are not answered
    garbled: str = ""  # this question is answered with a list where there should be anything else
    flags_lose_rows: bool = False  # 23.11 and early 24.05 with a flag missing
    requests: list[str] = field(default_factory=list)  # "POST /slurm/v0.0.44/job/7"
    before: Callable[[str], None] = lambda _: None  # called with the request, before it is looked at
    after: Callable[[str], None] = lambda _: None  # called when it has taken effect, before its answer
    clients: list[Closable] = field(default_factory=list)  # closed when it ends

    def __enter__(self) -> Self:
        self._server = SlurmHttp(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def version(self) -> str:
        return f"v0.0.{self.minor}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def token(self, user: str = "portal", *, expires: int = 4_000_000_000, key: bytes = KEY) -> str:
        return jwt.encode({"sun": user, "exp": expires, "iat": 1_600_000_000}, key, algorithm="HS256")

    def writes(self) -> list[str]:
        return [request for request in self.requests if not request.startswith("GET ")]

    def answer(self, method: str, path: str, query: dict[str, str], who: str | None, body: Any) -> Answer:
        if path == "/openapi/v3":
            return self._openapi()
        area, version, *rest = path.strip("/").split("/")
        if version != self.version or area not in {"slurm", "slurmdb"}:
            return Answer(404, "Unable find requested URL.")
        if who is None:
            return self._no_token(area, rest)
        if area == "slurmdb" and "slurmdbd" in self.down:
            return self._failed(
                200 if self.minor < 39 else 502, 7000, "Unable to connect to database", jobs=[]
            )
        if area == "slurm" and "slurmctld" in self.down and rest != ["ping"]:
            return self._failed(500 if self.minor < 41 else 502, -1, "Unspecified error")
        try:
            return self._route(method, area, rest, query, who, body)
        except SlurmRefusalError as refused:
            return self._failed(
                404 if refused.number == 2017 and self.minor > 38 else 500, refused.number, refused.words
            )

    def _route(  # noqa: PLR0911 - one return for each request that there is
        self, method: str, area: str, rest: list[str], query: dict[str, str], who: str, body: Any
    ) -> Answer:
        if rest[0] == self.garbled:
            names = {"tres": "TRES", "user": "users"}
            return self._good(**{names.get(rest[0], rest[0]): [7, None, "x"]})
        match (method, area, rest):
            case ("GET", "slurm", ["nodes"]):
                return self._good(nodes=[{"name": "gpu1", "gres": self.gres, "state": "IDLE"}])
            case ("GET", "slurm", ["ping"]):
                up = "slurmctld" not in self.down
                return self._good(
                    pings=[{"hostname": "vm", "mode": "primary", self._ping(): "UP" if up else "DOWN"}]
                )
            case ("GET", "slurm", ["diag"]) if self.tells_time:
                return self._good(
                    statistics={"req_time": self.now if self.minor < 40 else shapes.number(self.now)}
                )
            case ("GET", "slurm", ["jobs"]):
                return self._good(jobs=[shapes.live_job(job, minor=self.minor) for job in self._visible(who)])
            case ("GET", "slurm", ["job", number]):
                target = self.world._of(int(number))
                return self._good(jobs=[shapes.live_job(target, minor=self.minor)])
            case ("POST", "slurm", [_, what]):
                return self._requeue(body, who) if what == "requeue" else self._update(int(what), body, who)
            case ("DELETE", "slurm", ["job", number]):
                return self._cancel(int(number), who)
            case ("GET", "slurmdb", ["associations"]):
                return self._associations(query)
            case ("POST", "slurmdb", ["associations"]):
                return self._set_limits(body, who)
            case ("GET", "slurmdb", [name]) | ("GET", "slurmdb", [name, _]):
                return self._accounting(name, rest[-1], query, who)
        return Answer(404, "Unable find requested URL.")

    def _accounting(self, name: str, last: str, query: dict[str, str], who: str) -> Answer:
        if name == "jobs":
            return self._good(jobs=self._rows(query, who))
        if name == "tres":
            return self._good(
                TRES=[shapes.tres(resource, 0) for resource in ("cpu", "mem", "node", *self.tracked)]
            )
        if name == "clusters":
            return self._good(clusters=[{"name": cluster} for cluster in self.clusters])
        if name == "user":
            level = self.world.admins.get(last)
            if level is None:
                return self._good(users=[])
            return self._good(
                users=[{"name": last, "administrator_level": level if self.minor < 39 else [level]}]
            )
        return Answer(404, "Unable find requested URL.")

    def _rows(self, query: dict[str, str], who: str) -> list[dict[str, Any]]:
        if self.flags_lose_rows and "skip_steps" in query:
            return []
        since, until = (int(query[name].removeprefix("uts")) for name in ("start_time", "end_time"))
        rows = []
        for job in self._visible(who):
            if job.submitted < until and (job.ended == 0 or job.ended >= since):
                row = shapes.accounted_job(
                    job, minor=self.minor, cluster=self.clusters[0], tracked=self.tracked, now=self.now
                )
                again = (
                    1 + job.restarts
                    if "skip_steps" not in query or "show_duplicates" in query or self.minor < 39
                    else 1
                )
                rows += [row] * again
        return rows

    def _visible(self, who: str) -> list[Job]:
        everything = not self.private or self.world.operates(who)
        return [job for job in self.world.jobs.values() if everything or job.user == who]

    def _update(self, number: int, body: Any, who: str) -> Answer:
        if self.minor == 39:
            return self._failed(500, 9001, "environment must be set")
        if set(body) != {"hold"}:
            return self._failed(200 if self.minor < 39 else 500, 9001, "Failure during parsing")
        (self.world.hold if body["hold"] else self.world.release)(number, who=who)
        if self.minor < 39 and self.world.jobs[number].array:
            return Answer(200, {"meta": self._meta(), "errors": [{"description": "job array update failed"}]})
        return self._good()

    def _requeue(self, body: Any, who: str) -> Answer:
        """As 26.05 answers: an empty status, whatever came of it. Before, there is no such address."""
        if self.minor < 45:
            return Answer(404, "Unable find requested URL.")
        for number in body["jobs"]:
            self.world.requeue(int(number), who=who, hold="Hold" in body["flags"], now=self.now)
        return self._good(status=[])

    def _cancel(self, number: int, who: str) -> Answer:
        if self.minor < 43:
            self.world.cancel(number, who=who, finished_is_fine=self.minor < 39)
            return self._good()
        code, words = 0, "No error"
        try:
            self.world.cancel(number, who=who, finished_is_fine=False)
        except SlurmRefusalError as refused:
            code, words = refused.number, refused.words
        error = {"string": words, "code": code, "message": words if code else ""}
        status = {
            "step_id": str(number),
            "job_id": shapes.number(number),
            "error": error,
            "federation": {"sibling": ""},
        }
        return self._good(status=[status])

    def _associations(self, query: dict[str, str]) -> Answer:
        parameters = {"account", "cluster", "user", "partition", *OWN_LIMITS}
        if self.minor < 39 and (set(query) - {"account", "cluster", "user", "partition"}):
            return self._failed(500, 9001, "Unknown Query field")
        own = any(query.get(name) == "true" for name in OWN_LIMITS)
        associations = [
            shapes.association(row, self.world, minor=self.minor, own_only=own)
            for row in self.world.associations
            if row.account == query.get("account", row.account) and row.user == query.get("user", row.user)
        ]
        warnings = [{"description": f"unknown {name}"} for name in query if name not in parameters]
        return self._good(associations=associations, warnings=warnings)

    def _set_limits(self, body: Any, who: str) -> Answer:
        if self.minor < 40:
            raise AssertionError("an association was posted to a slurmrestd that it can crash")
        if set(body) != {"associations"}:
            return self._failed(500, 9001, "unknown field")
        for sent in body["associations"]:
            if set(sent) - ASSOCIATION_KEYS or set(sent.get("max", {})) - {"tres", "jobs"}:
                return self._failed(500, 9001, "unknown field")
            self.world.set_limits(sent, who=who)
        return self._good()

    def _openapi(self) -> Answer:
        areas = ("/slurm/v0.0.{}/jobs/", "/slurmdb/v0.0.{}/jobs/")
        served = [
            area.format(self.minor - back) for area in areas for back in range(2 if self.minor > 40 else 1)
        ]
        return Answer(200, {"openapi": "3.0.3", "paths": {path: {} for path in served}})

    def _no_token(self, area: str, rest: list[str]) -> Answer:
        if rest == ["ping"] and self.minor > 40:
            return self._good(pings=[{"hostname": "vm", "mode": "primary", self._ping(): "DOWN"}])
        if self.minor < 39 and area == "slurmdb":
            return self._failed(200, 1007, "Protocol authentication error", jobs=[])
        if area == "slurmdb":
            return self._failed(500 if self.minor < 42 else 502, 7000, "Unable to connect to database")
        return self._failed(500 if self.minor < 42 else 511, 1007, "Protocol authentication error")

    def _ping(self) -> str:
        return "ping" if self.minor < 39 else "pinged"

    def _meta(self) -> dict[str, Any]:
        release = {"release": RELEASES[self.minor], "version": {}}
        if self.minor < 40:
            return {"plugin": {}, "Slurm": release}
        return {"plugin": {}, "slurm": {**release, "cluster": self.clusters[0]}}

    def _good(self, **content: Any) -> Answer:
        empty: dict[str, Any] = {} if self.minor < 39 else {"warnings": []}
        return Answer(200, {"meta": self._meta(), "errors": [], **empty, **content})

    def _failed(self, status: int, number: int, words: str, **content: Any) -> Answer:
        error = {"description": words, "error_number": number, "error": words, "source": "stand-in"}
        return Answer(status, {"meta": self._meta(), "errors": [error], **content})
