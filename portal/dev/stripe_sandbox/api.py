"""The API: one request in, one answer out, by Stripe's rules for keys, versions, parameters and retries."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from portal.dev.stripe_sandbox import faults, listing, parameters, routes, scheduler, shapes
from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid, not_modelled
from portal.dev.stripe_sandbox.faults import Fault, Faults
from portal.dev.stripe_sandbox.keys import Keys
from portal.dev.stripe_sandbox.requests import Answer, Call, Incoming, Request, Violation, without_secret
from portal.dev.stripe_sandbox.state import State

REQUEST_LIMIT = 10_000  # requests
# What the official client makes up where no key is given: it does not survive a crash.
RANDOM_KEY = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Api:
    def __init__(self, state: State, keys: Keys, faults: Faults, keep: Callable[[], None]) -> None:
        self.state = state
        self.keys = keys
        self.faults = faults
        self.keep = keep  # write the state down
        self.requests: list[Request] = []
        self.violations: list[Violation] = []
        self._in_use: set[str] = set()
        self._lock = threading.Lock()

    def answer(self, incoming: Incoming) -> Answer:
        """Never raises; a fault may say that the connection is cut instead."""
        request = self._record(incoming)
        fault = self.faults.take(request)
        request.fault = None if fault is None else fault.kind
        try:
            answer = self._answered(incoming, request, fault)
        except ApiError as refused:
            answer = _refusal(request, refused)
        answer.headers |= {"Request-Id": request.id, "Stripe-Version": shapes.VERSION}
        if answer.status in {402, 500}:
            answer.headers["Stripe-Should-Retry"] = "false"
        if not answer.cut:
            request.status = answer.status
        return answer

    def _record(self, incoming: Incoming) -> Request:
        try:
            params = parameters.decoded(incoming.form)
        except ApiError:
            params = {"": incoming.form}
        request = Request(
            self.state.new_id("req")[:18],
            incoming.method,
            incoming.path,
            params,
            incoming.headers.get("idempotency-key"),
            without_secret(incoming.headers),
            self.state.now(),
        )
        with self._lock:
            self.requests.append(request)
            del self.requests[:-REQUEST_LIMIT]
        return request

    def broken(self, rule: str, request: Request, detail: str) -> None:
        with self._lock:
            self.violations.append(Violation(rule, request, detail))

    def broke(self, method: str, path: str, trace: str) -> None:
        """The sandbox itself failed: a violation too, so that no test passes by it."""
        request = Request("", method, path, {}, None, {}, self.state.now(), 500)
        self.broken("sandbox_failed", request, trace)

    def _answered(self, incoming: Incoming, request: Request, fault: Fault | None) -> Answer:
        if fault is not None and fault.kind in {"unauthorized", "forbidden", "rate_limited", "cut_before"}:
            return faults.answer(fault)
        route, ids = self._routed(incoming, request)
        params = self._checked(route, incoming, request)
        if fault is not None and fault.kind == "lock_timeout":
            return faults.answer(fault)
        if incoming.method != "POST":
            faults.pause(fault)
            return self._spoiled(self._carried_out(route, ids, params, request), fault)
        return self._once(route, ids, params, request, fault)

    def _routed(self, incoming: Incoming, request: Request) -> tuple[routes.Route, tuple[str, ...]]:
        header = incoming.headers.get("authorization")
        hit = routes.match(incoming.method, incoming.path)
        if header and self.keys.of_other_mode(header):
            self.broken(
                "key_of_other_mode", request, "a live key meets a test account, or the other way round"
            )
        self.keys.check(header, hit[0].permission if hit else "")
        version = incoming.headers.get("stripe-version")
        if version != shapes.VERSION:
            self.broken("stripe_version", request, f"{version} instead of {shapes.VERSION}")
        if hit is None:
            self.broken("unknown_endpoint", request, "the sandbox has no such endpoint")
            raise invalid(f"Unrecognized request URL ({incoming.method}: {incoming.path}).", status=404)
        return hit

    def _checked(self, route: routes.Route, incoming: Incoming, request: Request) -> Json:
        try:
            params = parameters.checked(route.described, parameters.decoded(incoming.form))
            for name in params:
                if name not in route.takes and name != "expand":
                    raise not_modelled(f"the parameter {name} of {route.method} {route.pattern}", param=name)
        except ApiError as refused:
            self.broken("parameters", request, refused.message)
            raise
        return params

    def _once(
        self, route: routes.Route, ids: tuple[str, ...], params: Json, request: Request, fault: Fault | None
    ) -> Answer:
        """Carry a POST out at most once per key within 24 hours of the sandbox's clock."""
        key = request.key
        if key is None:
            self.broken("no_idempotency_key", request, "a POST needs one")
            faults.pause(fault)
            return self._spoiled(self._carried_out(route, ids, params, request), fault)
        if RANDOM_KEY.fullmatch(key):
            self.broken(
                "made_up_idempotency_key", request, "the client made it up, so it does not survive a crash"
            )
        if len(key) > 255:
            raise invalid("Idempotency keys have at most 255 characters.")
        with self._lock:
            if key in self._in_use:
                raise _in_use(key)
            self._in_use.add(key)
        try:
            if stored := self._stored(key, request):
                return self._spoiled(stored, fault)
            faults.pause(fault)
            return self._first(route, ids, params, request, fault, key)
        finally:
            with self._lock:
                self._in_use.discard(key)

    def _stored(self, key: str, request: Request) -> Answer | None:
        with self.state.lock:
            if scheduler.settle(self.state):
                self.keep()
            stored = self.state.data.answers.get(key)
        if stored is None:
            return None
        if stored["path"] != request.path:
            self.broken("idempotency_key_reused", request, f"{key} was used for {stored['path']}")
            raise _misused(
                key,
                f"for the same endpoint they were first used for ('{request.path}' vs '{stored['path']}')",
            )
        if stored["params"] != request.params:
            self.broken("idempotency_key_reused", request, f"{key} was used with other parameters")
            raise _misused(key, "with the same parameters they were first used with")
        request.replayed = True
        replayed = Answer(stored["status"], stored["body"].encode())
        replayed.headers["Idempotent-Replayed"] = "true"
        replayed.headers["Original-Request"] = stored["request"]
        return replayed

    def _first(
        self,
        route: routes.Route,
        ids: tuple[str, ...],
        params: Json,
        request: Request,
        fault: Fault | None,
        key: str,
    ) -> Answer:
        if fault is not None and not fault.effect:
            answer = faults.answer(fault)
            if fault.stored:
                self._store(key, request, answer)
            return answer
        answer = self._carried_out(route, ids, params, request, key=key)
        spoiled = self._spoiled(answer, fault)
        if fault is not None and fault.kind == "server_error":
            with self.state.lock:
                self.state.data.answers.pop(key, None)
            if fault.stored:
                self._store(key, request, spoiled)
        return spoiled

    def _store(self, key: str, request: Request, answer: Answer) -> None:
        """Declines and errors too: whoever sends the key again hears them again."""
        stored = {
            "path": request.path,
            "params": request.params,
            "status": answer.status,
            "body": answer.body.decode(),
        }
        with self.state.lock:
            self.state.data.answers[key] = stored | {"at": self.state.now(), "request": request.id}
            self.keep()

    def _carried_out(
        self,
        route: routes.Route,
        ids: tuple[str, ...],
        params: Json,
        request: Request,
        *,
        key: str | None = None,
    ) -> Answer:
        """The effect, its events and the stored answer reach the disk together."""
        values = dict(params)
        paths = values.pop("expand", [])
        with self.state.lock:
            settled = scheduler.settle(self.state)
            self.state.request = {"id": request.id, "idempotency_key": request.key}
            try:
                resource = route.handler(Call(self.state, values, ids))
                answer = Answer.of(200, listing.expanded(self.state, resource, paths))
            except ApiError as refused:
                answer = _refusal(request, refused)
            finally:
                self.state.request = None
            if key is not None:
                self._store(key, request, answer)
            elif settled or request.method != "GET":
                self.keep()
        return answer

    def _spoiled(self, answer: Answer, fault: Fault | None) -> Answer:
        if fault is None or fault.kind == "delay":
            return answer
        if fault.kind == "truncated":
            half = answer.body[: len(answer.body) // 2]
            return Answer(answer.status, half, dict(answer.headers))
        return faults.answer(fault)


def _refusal(request: Request, refused: ApiError) -> Answer:
    error = {**refused.error, "request_log_url": f"https://dashboard.stripe.com/test/logs/{request.id}"}
    return Answer.of(refused.status, {"error": error})


def _in_use(key: str) -> ApiError:
    message = (
        f"There is currently another in-progress request using this Idempotent Key: {key}. Try again later."
    )
    return ApiError(409, {"type": "idempotency_error", "code": "idempotency_key_in_use", "message": message})


def _misused(key: str, how: str) -> ApiError:
    message = f"Keys for idempotent requests can only be used {how}. Try a key other than '{key}'."
    return ApiError(400, {"type": "idempotency_error", "message": message})
