"""Nobody reaches an inner network by a webhook: neither when it is made nor at any attempt. Case 56 of the API."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from portal.core.tenants.models import Tenant
from portal.core.webhooks import addresses, endpoints, http_request
from portal.core.webhooks.addresses import WebhookError
from portal.core.webhooks.models import Delivery, Webhook, WebhookState
from tests import builders
from tests.fakes.receiver import Receiver, Reply, authority, receiving
from tests.webhooks import LOOPBACK, a_clock, a_webhook, an_endpoint, deliver, happens

REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
    *("192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1"),
    *("255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:db8::1"),
    *("2002:7f00:1::1", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1"),
    *("ff02::1", "5f00::1", "4000::1", "nonsense", ""),
]
PUBLIC = [
    *("93.184.216.34", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "169.253.1.1"),
    *("2606:2800:220:1:248:1893:25c8:1946", "2a00:1450::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"),
]


@pytest.mark.parametrize("address", REFUSED)
def test_api_056_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not addresses.is_allowed(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_api_056_a_public_address_is_not(address: str) -> None:
    assert addresses.is_allowed(address)


@pytest.mark.parametrize("address", ["10.20.1.1", "::ffff:10.20.1.1", "64:ff9b::a14:101"])
def test_api_056_a_setting_opens_inner_networks_and_no_more_than_these(address: str) -> None:
    assert addresses.is_allowed(address, [ip_network("10.20.0.0/16")])
    assert not addresses.is_allowed(address, [ip_network("10.21.0.0/16"), ip_network("fd00:1::/64")])
    assert not addresses.is_allowed("169.254.169.254", [ip_network("10.20.0.0/16")])


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://hooks.example.org/", "address-http"), ("ftp://hooks.example.org/", "address-invalid"),
        ("file:///etc/passwd", "address-invalid"), ("gopher://127.0.0.1:6379/_x", "address-invalid"),
        ("https://user:pass@hooks.example.org/", "address-credentials"),
        ("https://user@hooks.example.org/", "address-credentials"),
        ("https://@hooks.example.org/", "address-credentials"),
        ("https://hooks.example.org/#x", "address-fragment"), ("https:///path", "address-invalid"),
        ("https://", "address-invalid"), ("hooks.example.org", "address-invalid"), ("", "address-invalid"),
        ("https://hooks.example.org:0/", "address-invalid"), ("https://hooks.example.org:99999/", "address-invalid"),
        ("https://hooks.example.org:x/", "address-invalid"), ("https://hooks.example.org/a b", "address-invalid"),
        ("https://hooks.example.org\\@127.0.0.1/", "address-invalid"),
        ("https://hooks.example.org/\r\nHost: x", "address-invalid"),
        ("https://hooks.example.org/\x00", "address-invalid"),
        ("https://h" + "o" * 500 + "ks.example.org/", "address-invalid"),
        ("https://hööks.example.org/", "address-invalid"),
        ("https://[::1/", "address-invalid"), ("\thttps://hooks.example.org/", "address-invalid"),
        ("https://127。0。0。1/", "address-invalid"), ("https://①②⑦.0.0.1/", "address-invalid"),
    ],
)  # fmt: skip
def test_api_056_what_is_no_address_to_post_to_is_refused_before_a_name_is_asked_for(
    url: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was asked for"))
    with pytest.raises(WebhookError) as refusal:
        addresses.resolve(url)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f.0.0.1/"),
        *("https://0177.0.0.1/", "https://0/", "https://localhost/", "https://localhost./", "https://[::1]/"),
        *("https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://169.254.169.254/latest/"),
        *("https://[fe80::1]/", "https://[64:ff9b::7f00:1]/", "https://LOCALHOST:5432/"),
    ],
)
def test_api_056_however_it_is_written_this_machine_is_refused(url: str) -> None:
    with pytest.raises(WebhookError) as refusal:
        addresses.resolve(url)
    assert refusal.value.code in {"address-refused", "address-invalid"}


class Names:
    """A name server of the test: what each name resolves to, and how often it was asked."""

    def __init__(self) -> None:
        self.rows: dict[str, list[str]] = {"127.0.0.1": ["127.0.0.1"]}
        self.asked_for: list[str] = []

    def __call__(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.asked_for.append(host)
        if host not in self.rows:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in row else socket.AF_INET, socket.SOCK_STREAM, 6, "", (row, port))
            for row in self.rows[host]
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr("portal.core.webhooks.addresses.socket.getaddrinfo", names)
    return names


def test_api_056_one_inner_address_among_public_ones_is_enough_to_be_refused(names: Names) -> None:
    names.rows["mixed.example"] = ["93.184.216.34", "10.0.0.1"]
    with pytest.raises(WebhookError, match=r"mixed\.example has no public address") as inner:
        addresses.resolve("https://mixed.example/")
    with pytest.raises(WebhookError) as nowhere:
        addresses.resolve("https://nowhere.example/")
    assert str(inner.value).replace("mixed", "nowhere") == str(
        nowhere.value
    )  # which tells nothing of inner names


@pytest.fixture
def vision(db: None) -> Tenant:
    return builders.a_tenant("vision")


@pytest.fixture
def receiver(vision: Tenant) -> Iterator[Receiver]:
    with an_endpoint() as receiver:
        yield receiver


def test_api_056_a_name_that_leads_to_an_inner_address_later_is_refused_at_the_attempt(
    receiver: Receiver, vision: Tenant, names: Names
) -> None:
    """It was public when the webhook was made; no connection is made, and the webhook fails as by an outage."""
    names.rows["hooks.example"] = ["127.0.0.1"]
    a_webhook(receiver, vision)
    Webhook.objects.update(url=receiver.url(host="hooks.example"))
    happens(vision, 1)
    names.rows["hooks.example"] = ["10.0.0.1"]
    deliver(a_clock())
    assert receiver.arrivals == []
    delivery = Delivery.objects.get()
    assert (delivery.error, delivery.status, delivery.attempts) == ("refused", None, 1)


def test_api_056_a_name_is_resolved_once_an_attempt_and_the_request_names_it(
    receiver: Receiver, vision: Tenant, names: Names
) -> None:
    """A second answer of the name server would lead elsewhere: nobody asks for it."""
    names.rows["hooks.example"] = ["127.0.0.1"]
    a_webhook(receiver, vision)
    Webhook.objects.update(url=receiver.url(host="hooks.example"))
    names.asked_for.clear()
    happens(vision, 1)
    deliver(a_clock())
    (arrival,) = receiver.arrivals
    assert arrival.headers["host"] == f"hooks.example:{receiver.port}"
    assert names.asked_for == ["hooks.example"]


def test_api_056_the_next_address_is_tried_where_the_first_takes_no_connection(
    receiver: Receiver, vision: Tenant, names: Names
) -> None:
    names.rows["hooks.example"] = ["::1", "127.0.0.1"]  # nothing listens on the first one
    a_webhook(receiver, vision)
    Webhook.objects.update(url=receiver.url(host="hooks.example"))
    happens(vision, 1)
    deliver(a_clock())
    assert len(receiver.arrivals) == 1


def test_api_056_proxies_of_the_environment_are_not_used(
    receiver: Receiver, vision: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    a_webhook(receiver, vision)
    happens(vision, 1)
    deliver(a_clock())
    assert len(receiver.arrivals) == 1
    assert os.environ["HTTP_PROXY"]


def test_api_056_credentials_of_a_netrc_are_not_sent(
    receiver: Receiver, vision: Tenant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login op password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    a_webhook(receiver, vision)
    happens(vision, 1)
    deliver(a_clock())
    assert "authorization" not in receiver.arrivals[0].headers


def test_api_056_a_redirect_to_an_inner_address_is_not_followed(receiver: Receiver, vision: Tenant) -> None:
    a_webhook(receiver, vision)
    receiver.reply = lambda arrival: Reply(307, {"Location": "http://169.254.169.254/latest/meta-data"})
    happens(vision, 1)
    deliver(a_clock())
    assert Delivery.objects.get().error == "redirect"


@pytest.mark.parametrize(
    ("names_in_certificate", "trusted", "error"),
    [(["hooks.example"], True, ""), (["other.example"], True, "tls"), (["hooks.example"], False, "tls")],
)
def test_api_056_tls_is_verified_for_the_name_although_an_address_is_connected_to(
    vision: Tenant,
    names: Names,
    tmp_path: Path,
    names_in_certificate: list[str],
    trusted: bool,
    error: str,
) -> None:
    names.rows["hooks.example"] = ["127.0.0.1"]
    ca, context = authority(tmp_path, *names_in_certificate)
    http_request._trust.cache_clear()
    server_names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: server_names.append(name)
    try:
        with (
            override_settings(WEBHOOK_NETWORKS=LOOPBACK, WEBHOOK_CA_FILE=ca if trusted else None),
            receiving(context) as receiver,
        ):
            a_webhook(receiver, vision)
            Webhook.objects.update(url=receiver.url(host="hooks.example"))
            happens(vision, 1)
            deliver(a_clock())
            assert len(receiver.arrivals) == (not error)
    finally:
        http_request._trust.cache_clear()
    assert server_names[0] == "hooks.example"
    assert Delivery.objects.get().error == error


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 50_000,
     b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", b"\x16\x03\x01",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 99999 OK\r\n\r\n"],
)  # fmt: skip
def test_api_056_whatever_an_endpoint_answers_is_one_failed_attempt(
    receiver: Receiver, vision: Tenant, answer: bytes
) -> None:
    import threading

    a_webhook(receiver, vision)
    with socket.create_server(("127.0.0.1", 0)) as raw:
        Webhook.objects.update(url=f"http://127.0.0.1:{raw.getsockname()[1]}/hook")

        def serve() -> None:
            connection, _ = raw.accept()
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(answer)
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        happens(vision, 1)
        deliver(a_clock())
        thread.join()
    delivery = Delivery.objects.get()
    assert (delivery.attempts, delivery.state) == (1, "waiting")
    assert delivery.error in {"invalid-answer", "not-reached"}


def test_api_056_a_port_where_nothing_listens_is_one_failed_attempt(
    receiver: Receiver, vision: Tenant
) -> None:
    a_webhook(receiver, vision)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    Webhook.objects.update(url=f"http://127.0.0.1:{port}/hook")
    happens(vision, 1)
    deliver(a_clock())
    assert Delivery.objects.get().error == "not-reached"


def test_api_056_a_webhook_is_not_made_for_what_is_refused(vision: Tenant) -> None:
    """The use case takes only what was resolved: no door can forget to."""
    with pytest.raises(WebhookError):
        endpoints.put_webhook(
            tenant=vision,
            name="inner",
            target=addresses.resolve("https://127.0.0.1/"),
            types=(),
            maker=builders.a_person(),
            moment=a_clock()(),
        )
    assert not Webhook.objects.filter(state=WebhookState.ACTIVE).exists()
