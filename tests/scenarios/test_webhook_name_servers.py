"""Eve's name servers say nothing for long: Ann's webhooks arrive as ever, and nothing is said of who only waited."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from portal.core.tenants.models import Tenant
from portal.core.webhooks import addresses, delivery_run, http_request, resolvers
from portal.core.webhooks.addresses import WebhookError
from portal.core.webhooks.models import Delivery, Webhook
from tests import builders
from tests.fakes.receiver import Receiver, receiving
from tests.webhooks import a_clock, a_webhook, deliver, happens, inner_networks

pytestmark = pytest.mark.django_db

LONG = 30.0  # seconds that a name server says nothing, unless it is released


class NameServers:
    """Names of dead.example are resolved by nobody until `released`; all others lead to this machine at once."""

    def __init__(self) -> None:
        self.released, self.lock = threading.Event(), threading.Lock()
        self.asked: list[str] = []
        self.under_way: dict[str, int] = {}
        self.most: dict[str, int] = {}  # at once, by the first letters of the name

    def __call__(self, host: str, port: int, **_: Any) -> list[Any]:
        whose = host.partition("-")[0]
        with self.lock:
            self.asked.append(host)
            self.under_way[whose] = self.under_way.get(whose, 0) + 1
            self.most[whose] = max(self.most.get(whose, 0), self.under_way[whose])
        try:
            if host.endswith("dead.example"):
                self.released.wait(LONG)
                raise socket.gaierror(-3, "try again")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        finally:
            with self.lock:
                self.under_way[whose] -= 1


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    names = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    names.released.set()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with inner_networks(), receiving() as receiver:
        yield receiver


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds that a run, an attempt and a turn may take."""
    monkeypatch.setattr(delivery_run, "LONGEST", 3.0)
    for module in (delivery_run, http_request):
        monkeypatch.setattr(module, "PATIENCE", 1.5)
    for module in (delivery_run, resolvers):
        monkeypatch.setattr(module, "TURN", 0.5)


def at_the_name(receiver: Receiver, tenant: Tenant, host: str, path: str = "/hook") -> Webhook:
    webhook = a_webhook(receiver, tenant, path=path)
    Webhook.objects.filter(pk=webhook.pk).update(url=receiver.url(path, host))
    return webhook


def deliveries(tenant: Tenant) -> list[tuple[str, int, str]]:
    return [*Delivery.objects.filter(tenant=tenant).values_list("state", "attempts", "error").order_by("pk")]


@pytest.mark.peers  # takes long
@pytest.mark.usefixtures("short")
def test_api_054_a_dead_name_server_delays_nobody_else(receiver: Receiver, names: NameServers) -> None:
    """Twenty of Eve's names hang, more than there are threads to wait for them."""
    count = 20
    eve, ann = builders.a_tenant("eve"), builders.a_tenant("ann")
    assert count > resolvers.THREADS
    for number in range(count):
        at_the_name(receiver, eve, f"eve-{number}.dead.example", f"/eve-{number}")
    hook = at_the_name(receiver, ann, "ann-hooks.example")
    happens(eve, 1)
    happens(ann, 1, 2, 3)
    deliver(a_clock())
    assert deliveries(ann) == [("delivered", 1, "")] * 3
    hook.refresh_from_db()
    assert hook.failing_since is None
    assert (names.most["eve"], names.most["ann"]) == (1, 1)
    tried = [error for _state, attempts, error in deliveries(eve) if attempts]
    assert set(tried) <= {"timeout"}
    assert len(tried) < count  # the others' turn has not come: of their endpoints nothing is said
    untried = Webhook.objects.filter(tenant=eve, failing_since=None)
    assert untried.count() == count - len(tried)
    assert not untried.filter(deliveries__attempts__gt=0).exists()


@pytest.mark.usefixtures("short")
def test_api_054_names_of_webhooks_that_fail_are_asked_for_apart(
    receiver: Receiver, names: NameServers
) -> None:
    """Of many tenants at once, and of one and the same tenant, too."""
    moment = a_clock()()
    ann = builders.a_tenant("ann")
    for number in range(resolvers.THREADS):
        lab = builders.a_tenant(f"lab-{number}")
        failing = at_the_name(receiver, lab, f"lab{number}-hooks.dead.example", f"/lab-{number}")
        Webhook.objects.filter(pk=failing.pk).update(failing_since=moment)
        happens(lab, 1)
    own = at_the_name(receiver, ann, "annsold-hooks.dead.example", "/old")
    Webhook.objects.filter(pk=own.pk).update(failing_since=moment)
    at_the_name(receiver, ann, "ann-hooks.example", "/new")
    happens(ann, 1)
    deliver(a_clock())
    assert receiver.types("/new") == ["invoice.issued"]
    assert sum(host.endswith("dead.example") for host in names.asked) >= resolvers.THREADS


def test_a_name_server_that_answers_later_frees_the_turn_and_not_the_waiting_attempt(
    receiver: Receiver, names: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gave up waiting leaves a thread behind: the tenant's next name is not asked for before it ends."""
    import asyncio

    async def story() -> list[bool]:
        asking = resolvers.Resolvers()
        first = await asking.turn(tenant=7, is_failing=False)
        assert first is not None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first("https://x.dead.example/"), 0.1)
        monkeypatch.setattr(resolvers, "TURN", 0.2)
        own = await asking.turn(tenant=7, is_failing=False)
        others = await asking.turn(tenant=8, is_failing=False)
        names.released.set()
        monkeypatch.setattr(resolvers, "TURN", 5.0)
        later = await asking.turn(tenant=7, is_failing=False)
        asking.close()
        return [own is not None, others is not None, later is not None]

    assert asyncio.run(story()) == [False, True, True]


@pytest.mark.parametrize("tenant", [None, 7])
def test_whoever_saves_addresses_of_a_dead_name_server_keeps_nobody_else_from_it(
    names: NameServers, monkeypatch: pytest.MonkeyPatch, tenant: int | None
) -> None:
    monkeypatch.setattr(addresses, "PATIENCE", 0.3)
    monkeypatch.setattr(addresses, "is_allowed", lambda *_: True)

    def saves(host: str, whose: int | None) -> Callable[[], None]:
        def save() -> None:
            with pytest.raises(WebhookError):
                addresses.resolve_in_time(f"https://{host}/", tenant=whose)

        return save

    threads = [threading.Thread(target=saves(f"eve-{number}.dead.example", tenant)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names.most == {"eve": 1}
    assert addresses.resolve_in_time("https://ann.example/", tenant=8).addresses == ("127.0.0.1",)
