"""The API: one request in, one answer out, by Stripe's rules for keys, versions, parameters and retries."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from portal.dev.stripe_sandbox import expanding, faults, forms, parameters, routes, scheduler, shapes
from portal.dev.stripe_sandbox.calls import Call
from portal.dev.stripe_sandbox.errors import ApiError, Json, invalid, not_modelled
from portal.dev.stripe_sandbox.faults import Fault, Faults
from portal.dev.stripe_sandbox.keys import Keys
from portal.dev.stripe_sandbox.requests import Answer, Asked, Incoming, Violation, without_secret
from portal.dev.stripe_sandbox.state import World

KEPT = 10_000  # requests
# What the official client makes up where no key is given: it does not survive a crash.
MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Api:
    def __init__(self, world: World, keys: Keys, faults: Faults, keep: Callable[[], None]) -> None:
        self.world = world
        self.keys = keys
        self.faults = faults
        self.keep = keep  # write the state down
        self.requests: list[Asked] = []
        self.violations: list[Violation] = []
        self._in_use: set[str] = set()
        self._lock = threading.Lock()

    def answer(self, incoming: Incoming) -> Answer:
        """Never raises; a fault may say that the connection is cut instead."""
        asked = self._taken_down(incoming)
        fault = self.faults.take(asked)
        asked.fault = None if fault is None else fault.kind
        try:
            given = self._answered(incoming, asked, fault)
        except ApiError as refused:
            given = _refusal(asked, refused)
        given.headers |= {"Request-Id": asked.id, "Stripe-Version": shapes.VERSION}
        if given.status in {402, 500}:
            given.headers["Stripe-Should-Retry"] = "false"
        if not given.cut:
            asked.status = given.status
        return given

    def _taken_down(self, incoming: Incoming) -> Asked:
        try:
            params = forms.decoded(incoming.form)
        except ApiError:
            params = {"": incoming.form}
        asked = Asked(
            self.world.new_id("req")[:18],
            incoming.method,
            incoming.path,
            params,
            incoming.headers.get("idempotency-key"),
            without_secret(incoming.headers),
            self.world.now(),
        )
        with self._lock:
            self.requests.append(asked)
            del self.requests[:-KEPT]
        return asked

    def broken(self, rule: str, asked: Asked, detail: str) -> None:
        with self._lock:
            self.violations.append(Violation(rule, asked, detail))

    def broke(self, method: str, path: str, trace: str) -> None:
        """The sandbox itself failed: a violation too, so that no test passes by it."""
        asked = Asked("", method, path, {}, None, {}, self.world.now(), 500)
        self.broken("sandbox_failed", asked, trace)

    def _answered(self, incoming: Incoming, asked: Asked, fault: Fault | None) -> Answer:
        if fault is not None and fault.kind in {"unauthorized", "forbidden", "rate_limited", "cut_before"}:
            return faults.answer(fault)
        route, ids = self._routed(incoming, asked)
        params = self._checked(route, incoming, asked)
        if fault is not None and fault.kind == "lock_timeout":
            return faults.answer(fault)
        if incoming.method != "POST":
            faults.pause(fault)
            return self._spoiled(self._carried_out(route, ids, params, asked), fault)
        return self._once(route, ids, params, asked, fault)

    def _routed(self, incoming: Incoming, asked: Asked) -> tuple[routes.Route, tuple[str, ...]]:
        header = incoming.headers.get("authorization")
        hit = routes.found(incoming.method, incoming.path)
        if header and self.keys.of_other_mode(header):
            self.broken("key_of_other_mode", asked, "a live key meets a test account, or the other way round")
        self.keys.check(header, hit[0].permission if hit else "")
        version = incoming.headers.get("stripe-version")
        if version != shapes.VERSION:
            self.broken("stripe_version", asked, f"{version} instead of {shapes.VERSION}")
        if hit is None:
            self.broken("unknown_endpoint", asked, "the sandbox has no such endpoint")
            raise invalid(f"Unrecognized request URL ({incoming.method}: {incoming.path}).", status=404)
        return hit

    def _checked(self, route: routes.Route, incoming: Incoming, asked: Asked) -> Json:
        try:
            params = parameters.checked(route.described, forms.decoded(incoming.form))
            for name in params:
                if name not in route.takes and name != "expand":
                    raise not_modelled(f"the parameter {name} of {route.method} {route.pattern}", param=name)
        except ApiError as refused:
            self.broken("parameters", asked, refused.message)
            raise
        return params

    def _once(
        self, route: routes.Route, ids: tuple[str, ...], params: Json, asked: Asked, fault: Fault | None
    ) -> Answer:
        """Carry a POST out at most once per key within 24 hours of the sandbox's clock."""
        key = asked.key
        if key is None:
            self.broken("no_idempotency_key", asked, "a POST needs one")
            faults.pause(fault)
            return self._spoiled(self._carried_out(route, ids, params, asked), fault)
        if MADE_UP.fullmatch(key):
            self.broken(
                "made_up_idempotency_key", asked, "the client made it up, so it does not survive a crash"
            )
        if len(key) > 255:
            raise invalid("Idempotency keys have at most 255 characters.")
        with self._lock:
            if key in self._in_use:
                raise _in_use(key)
            self._in_use.add(key)
        try:
            if stored := self._stored(key, asked):
                return self._spoiled(stored, fault)
            faults.pause(fault)
            return self._first(route, ids, params, asked, fault, key)
        finally:
            with self._lock:
                self._in_use.discard(key)

    def _stored(self, key: str, asked: Asked) -> Answer | None:
        with self.world.lock:
            if scheduler.settle(self.world):
                self.keep()
            kept = self.world.state.answers.get(key)
        if kept is None:
            return None
        if kept["path"] != asked.path:
            self.broken("idempotency_key_reused", asked, f"{key} was used for {kept['path']}")
            raise _misused(
                key, f"for the same endpoint they were first used for ('{asked.path}' vs '{kept['path']}')"
            )
        if kept["params"] != asked.params:
            self.broken("idempotency_key_reused", asked, f"{key} was used with other parameters")
            raise _misused(key, "with the same parameters they were first used with")
        asked.replayed = True
        replayed = Answer(kept["status"], kept["body"].encode())
        replayed.headers["Idempotent-Replayed"] = "true"
        replayed.headers["Original-Request"] = kept["request"]
        return replayed

    def _first(
        self,
        route: routes.Route,
        ids: tuple[str, ...],
        params: Json,
        asked: Asked,
        fault: Fault | None,
        key: str,
    ) -> Answer:
        if fault is not None and not fault.effect:
            given = faults.answer(fault)
            if fault.stored:
                self._store(key, asked, given)
            return given
        given = self._carried_out(route, ids, params, asked, key=key)
        spoiled = self._spoiled(given, fault)
        if fault is not None and fault.kind == "server_error":
            with self.world.lock:
                self.world.state.answers.pop(key, None)
            if fault.stored:
                self._store(key, asked, spoiled)
        return spoiled

    def _store(self, key: str, asked: Asked, given: Answer) -> None:
        """Declines and errors too: whoever sends the key again hears them again."""
        kept = {
            "path": asked.path,
            "params": asked.params,
            "status": given.status,
            "body": given.body.decode(),
        }
        with self.world.lock:
            self.world.state.answers[key] = kept | {"at": self.world.now(), "request": asked.id}
            self.keep()

    def _carried_out(
        self, route: routes.Route, ids: tuple[str, ...], params: Json, asked: Asked, *, key: str | None = None
    ) -> Answer:
        """The effect, its events and the stored answer reach the disk together."""
        told = dict(params)
        paths = told.pop("expand", [])
        with self.world.lock:
            settled = scheduler.settle(self.world)
            self.world.asked = {"id": asked.id, "idempotency_key": asked.key}
            try:
                made = route.handler(Call(self.world, told, ids))
                given = Answer.of(200, expanding.expanded(self.world, made, paths))
            except ApiError as refused:
                given = _refusal(asked, refused)
            finally:
                self.world.asked = None
            if key is not None:
                self._store(key, asked, given)
            elif settled or asked.method != "GET":
                self.keep()
        return given

    def _spoiled(self, given: Answer, fault: Fault | None) -> Answer:
        if fault is None or fault.kind == "delay":
            return given
        if fault.kind == "truncated":
            half = given.body[: len(given.body) // 2]
            return Answer(given.status, half, dict(given.headers))
        return faults.answer(fault)


def _refusal(asked: Asked, refused: ApiError) -> Answer:
    error = {**refused.error, "request_log_url": f"https://dashboard.stripe.com/test/logs/{asked.id}"}
    return Answer.of(refused.status, {"error": error})


def _in_use(key: str) -> ApiError:
    message = (
        f"There is currently another in-progress request using this Idempotent Key: {key}. Try again later."
    )
    return ApiError(409, {"type": "idempotency_error", "code": "idempotency_key_in_use", "message": message})


def _misused(key: str, how: str) -> ApiError:
    message = f"Keys for idempotent requests can only be used {how}. Try a key other than '{key}'."
    return ApiError(400, {"type": "idempotency_error", "message": message})
