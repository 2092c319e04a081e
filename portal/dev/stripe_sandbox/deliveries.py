"""Webhooks: signed, sent by a thread, and sent wrongly where a test orders it."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.state import State

MINUTE, HOUR = 60, 3600
# Seconds of the sandbox's clock until the next try; three days in all.
RETRIES = (10, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, *(12 * HOUR,) * 4)
Order = Literal["sent", "reversed", "shuffled"]


@dataclass
class _Fault:
    kind: Literal["duplicate", "lose", "delay"]
    types: str
    times: int
    number: int = 0  # further copies, or seconds


class Webhooks:
    """Deliveries wait in the state until an endpoint took them. Faults count for the first try of a delivery."""

    def __init__(self, state: State, keep: Callable[[], None]) -> None:
        self.state = state
        self.keep = keep
        self.sent: list[tuple[Message, int]] = []  # every try of the thread, with its status; 0 is no answer
        self._faults: list[_Fault] = []
        self._paused = False
        self._down = False
        self._chance: random.Random | None = None
        self._odds = (0, 0)
        self._busy = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stripe-sandbox-webhooks", daemon=True)

    def duplicate(self, types: str = "*", *, times: int = 1, copies: int = 1) -> None:
        """The next deliveries of those types arrive `copies` times more."""
        self._faults.append(_Fault("duplicate", types, times, copies))

    def lose(self, types: str = "*", *, times: int = 1) -> None:
        """The next deliveries of those types never arrive, unless `redeliver` is told."""
        self._faults.append(_Fault("lose", types, times))

    def delay(self, seconds: int, types: str = "*", *, times: int = 1) -> None:
        """The next deliveries of those types leave later, by the sandbox's clock."""
        self._faults.append(_Fault("delay", types, times, seconds))

    def disorder(self, seed: int, *, duplicate: int = 4, lose: int = 0) -> None:
        """From now on shuffled, one in `duplicate` doubled and one in `lose` lost (0 is none), repeatably."""
        self._chance, self._odds = random.Random(seed), (duplicate, lose)  # noqa: S311 - repeatable, no secret

    def mend(self) -> None:
        """Take back every fault that is still ordered."""
        self._faults.clear()
        self._chance, self._down = None, False

    def hold(self) -> None:
        """Nothing leaves until it is released."""
        self._paused = True

    def release(self, order: Order = "sent", *, seed: int = 0) -> None:
        """What was held leaves in that order."""
        with self.state.lock:
            waiting = self.state.data.deliveries
            if order == "reversed":
                waiting.reverse()
            elif order == "shuffled":
                random.Random(seed).shuffle(waiting)  # noqa: S311 - repeatable, no secret
            self._paused = False
            self.state.changed.notify_all()

    def down(self) -> None:
        """The endpoint cannot be reached: every try fails, and is tried again as the clock goes on."""
        self._down = True

    def up(self) -> None:
        self._down = False

    def redeliver(self, types: str = "*") -> int:
        """Send all that was not taken once more, now; how many that are."""
        with self.state.lock:
            again = [one for one in self.state.data.deliveries if fnmatchcase(one["type"], types)]
            for one in again:
                one |= {"state": "pending", "at": self.state.now(), "judged": True}
            self.state.changed.notify_all()
        return len(again)

    def roll(self, endpoint: str | None = None) -> str:
        """A further secret for the (first) endpoint: both sign from now on."""
        with self.state.lock:
            identifier = endpoint or self.state.all("webhook_endpoint")[0]["id"]
            secret = f"whsec_{self.state.new_id('x')[2:]}"
            self.state.hidden(identifier)["secrets"].append(secret)
            return secret

    def forget(self, secret: str) -> None:
        """That secret signs no more."""
        with self.state.lock:
            for endpoint in self.state.all("webhook_endpoint"):
                secrets = self.state.hidden(endpoint["id"])["secrets"]
                secrets[:] = [one for one in secrets if one != secret]

    def take(self, order: Order = "sent", *, seed: int = 0, signed_at: int | None = None) -> list[Message]:
        """What is due for endpoints of the sandbox that have no address, as delivered; duplicates are in it."""
        with self.state.lock:
            messages = []
            while one := self._next(manual=True):
                if self._down:
                    self._failed(one)
                    continue
                message = self._message(one, signed_at)
                messages += [message] * one["copies"]
                self._delivered(one)
            self.keep()
        if order == "reversed":
            messages.reverse()
        elif order == "shuffled":
            random.Random(seed).shuffle(messages)  # noqa: S311 - repeatable, no secret
        return messages

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with self.state.lock:
            self.state.changed.notify_all()
        self._thread.join(timeout=15)

    def wait(self, timeout: float = 10) -> None:
        """Until all that is due was sent once; TimeoutError after that many real seconds."""
        ends = time.monotonic() + timeout
        while True:
            with self.state.lock:
                if not self._busy and self._due(manual=False) == []:
                    return
            if time.monotonic() > ends:
                raise TimeoutError(
                    "The webhooks of the sandbox are still on their way: is the endpoint stuck?"
                )
            time.sleep(0.005)

    def _run(self) -> None:
        while not self._stopped.is_set():
            with self.state.lock:
                one = self._next(manual=False)
                if one is None:
                    self.state.changed.wait(timeout=0.5)
                    continue
                message = self._message(one, None)
                copies = one["copies"]
                self._busy = True
            statuses = [self._send(message) for _ in range(copies)]
            with self.state.lock:
                if any(200 <= status < 300 for status in statuses):
                    self._delivered(one)
                else:
                    self._failed(one)
                self._busy = False
                self.keep()

    def _send(self, message: Message) -> int:
        status = 0 if self._down else posted(message)
        self.sent.append((message, status))
        del self.sent[:-10_000]
        return status

    # From here on the caller holds the lock of the state.

    def _due(self, *, manual: bool) -> list[Json]:
        if self._paused:
            return []
        now, hidden = self.state.now(), self.state.hidden
        return [
            one
            for one in self.state.data.deliveries
            if one["state"] == "pending"
            and one["at"] <= now
            and hidden(one["endpoint"]).get("manual", False) == manual
        ]

    def _next(self, *, manual: bool) -> Json | None:
        while due := self._due(manual=manual):
            one = due[0] if self._chance is None else self._chance.choice(due)
            if self._judged(one):
                return one
        return None

    def _judged(self, one: Json) -> bool:
        """Whether it leaves now, after the faults that were ordered."""
        if one.get("judged"):
            return True
        one["judged"] = True
        if self._chance is not None:
            duplicate_odds, loss_odds = self._odds
            if loss_odds and self._chance.randrange(loss_odds) == 0:
                one["state"] = "lost"
                return False
            if duplicate_odds and self._chance.randrange(duplicate_odds) == 0:
                one["copies"] = 2
        for fault in list(self._faults):
            if fnmatchcase(one["type"], fault.types):
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return self._apply(one, fault)
        return True

    def _apply(self, one: Json, fault: _Fault) -> bool:
        if fault.kind == "lose":
            one["state"] = "lost"
        elif fault.kind == "delay":
            one["at"] = self.state.now() + fault.number
        else:
            one["copies"] = 1 + fault.number
        return fault.kind == "duplicate"

    def _message(self, one: Json, signed_at: int | None) -> Message:
        event = self.state.get("event", one["event"])
        endpoint = self.state.find("webhook_endpoint", one["endpoint"])
        body = json.dumps(event, indent=2).encode()
        # Signed by real time, which is what whoever verifies it compares with.
        at = int(time.time()) if signed_at is None else signed_at
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)",
            "Stripe-Signature": signature(body, self.state.hidden(one["endpoint"])["secrets"], at),
        }
        return Message(event["id"], event["type"], endpoint["url"] if endpoint else "", body, headers)

    def _delivered(self, one: Json) -> None:
        self.state.data.deliveries.remove(one)
        self.state.get("event", one["event"])["pending_webhooks"] -= 1

    def _failed(self, one: Json) -> None:
        tries = one["attempts"]
        one["attempts"] = tries + 1
        if tries < len(RETRIES):
            one["at"] = self.state.now() + RETRIES[tries]
        else:
            one["state"] = "given_up"


@dataclass(frozen=True)
class Message:
    """What an endpoint gets: the raw body and its headers."""

    event: str
    type: str
    url: str
    body: bytes
    headers: dict[str, str]


def signature(body: bytes, secrets: list[str], at: int) -> str:
    """`t=…,v1=…`, one v1 for each secret that is in force."""
    signed = str(at).encode() + b"." + body
    signatures = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={one}" for one in signatures)])


def posted(message: Message) -> int:
    """Send it: the status, 0 if nobody answered."""
    parts = urlsplit(message.url)
    https = parts.scheme == "https"
    connect = http.client.HTTPSConnection if https else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=10)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path or "/", message.body, message.headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
