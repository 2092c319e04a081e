"""The table of the walk: each address and method, the scope that it needs, and what it answers whoever has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class Address:
    method: str
    route: str
    tenant: str = ""  # the scope of a tenant's key; "": for no tenant
    operator: str = ""  # the scope of an operator's key
    answer: int = 200
    whole_tenant: bool = False  # refused to a key of one project
    answer_to_operator: int = 0  # where it is another one
    text: str = ""  # of its body, in JSON
    query: str = ""
    cluster: str = ""  # the scope of a key of one cluster
    own: bool = False  # whoever names what is not theirs makes their own

    @property
    def body(self) -> bytes | None:
        return self.text.encode() if self.text else None


def filled(route: str, names: Mapping[str, str]) -> str:
    """The address with the object's name in it."""
    name = names.get(route.split("/", maxsplit=1)[0], "?")
    filled_in = route.replace("<str:name>", name).replace("<path:name>", name)
    return (
        filled_in.replace("<str:email>", "ben@vision.example")
        .replace("<str:day>", "2017-01-01")
        .replace("<str:file>", "a")
        .replace("<str:invitation>", names.get("invitations", "?"))
    )


def _reading(
    route: str, scope: str, *, whole: bool = False, answer: int = 200, op: int = 0, query: str = ""
) -> Address:
    return Address("GET", route, scope, "ops:read", answer, whole, op, query=query)


def _webhook(method: str, route: str, answer: int, text: str = "", *, own: bool = False) -> Address:
    """Of a tenant, or of the operators: each has one of that name."""
    scope = "webhooks:write"
    return Address(method, route, scope, scope, answer, True, 0, text, own=own)


def _operating(route: str, answer: int = 200) -> Address:
    return Address("GET", route, "", "ops:read", answer)


def _writing(method: str, route: str, scope: str, answer: int, text: str = "") -> Address:
    return Address(method, route, "", scope, answer, text=text)


ADDRESSES = (
    Address("GET", "me"),
    _reading("status", "usage:read"),
    Address(
        "POST",
        "quotes",
        "usage:read",
        "ops:read",
        200,
        whole_tenant=True,
        answer_to_operator=400,
        text='{"hours":"1"}',
    ),
    Address("POST", "job-checks", cluster="jobs:check"),
    Address("POST", "job-reservations", cluster="jobs:reserve"),
    Address("DELETE", "job-reservations/<path:name>", cluster="jobs:reserve"),
    Address("GET", "blocked-accounts", cluster="jobs:reserve"),
    Address("POST", "usage-events", "", "usage:push", 400),  # it has to name the cluster
    _reading("forecast", "usage:read", whole=True, op=400),  # an operator has to name the tenant
    _reading("usage", "usage:read", op=400, query="?from=2026-03-01&to=2026-04-01&group_by=user"),
    _reading(
        "usage/change",
        "usage:read",
        op=400,
        query="?earlier_from=2026-02-01&earlier_to=2026-03-01&from=2026-03-01&to=2026-04-01&group_by=user",
    ),
    _reading("jobs", "jobs:read", op=400),  # an operator has to name the tenant
    _reading("jobs/<str:name>", "jobs:read", op=400),
    _reading("invoices", "invoices:read", whole=True),
    _reading("invoices/<str:name>", "invoices:read", whole=True),
    _reading("invoices/<str:name>/lines", "invoices:read", whole=True),
    _reading("invoices/<str:name>/pdf", "invoices:read", whole=True, answer=409),  # nothing is rendered
    _reading("invoices/<str:name>/einvoice.xml", "invoices:read", whole=True, answer=409),
    _reading("invoices/<str:name>/jobs.csv", "invoices:read", whole=True),
    _reading("invoices/<str:name>/evidence.zip", "invoices:read", whole=True, answer=409),
    Address(
        "POST", "invoices/<str:name>/payments", "payments:write", "", 409, whole_tenant=True
    ),  # no gateway is set
    Address("GET", "invoices/<str:name>/payment-links", "payments:write", whole_tenant=True),
    Address(
        "POST",
        "invoices/<str:name>/payment-links",
        "payments:write",
        answer=201,
        whole_tenant=True,
        text='{"days":30}',
    ),
    Address("GET", "payment-links/<str:name>", "payments:write", whole_tenant=True),
    Address("DELETE", "payment-links/<str:name>", "payments:write", answer=204, whole_tenant=True),
    _reading(
        "exports/focus", "invoices:read", op=400, whole=True, query="?period=2026-03"
    ),  # he names the tenant
    Address("GET", "exports/audit", "", "audit:read", 409),  # no key signs yet
    Address("GET", "exports/ledger", "", "ops:read", query="?period=2026-03"),
    _reading("payments", "invoices:read", whole=True),
    _reading("events", "invoices:read", whole=True),
    _reading("wallets", "wallets:read"),
    _reading("wallets/<str:name>", "wallets:read"),
    _reading("wallets/<str:name>/entries", "wallets:read"),
    _reading("wallets/<str:name>/holds", "wallets:read"),
    _reading("wallets/<str:name>/grants", "wallets:read"),
    _reading("wallets/<str:name>/statement", "wallets:read", query="?period=2026-04"),
    Address("GET", "keys", "keys:write", whole_tenant=True),
    Address(
        "POST",
        "keys",
        "keys:write",
        "",
        201,
        whole_tenant=True,
        text='{"name":"new","scopes":["usage:read"]}',
    ),
    Address("GET", "keys/<str:name>", "keys:write", whole_tenant=True),
    Address("PATCH", "keys/<str:name>", "keys:write", whole_tenant=True, text='{"name":"other"}'),
    Address(
        "POST",
        "keys/<str:name>/rotations",
        "keys:write",
        "",
        201,
        whole_tenant=True,
        text='{"overlap_hours":1}',
    ),
    Address("DELETE", "keys/<str:name>", "keys:write", answer=204, whole_tenant=True),
    _reading("idle-jobs", "jobs:read", whole=True),
    _reading("service-credits", "jobs:read", whole=True),
    _reading("limits", "quotas:read"),
    _reading("limits/<str:name>", "quotas:read", op=400),  # of which tenant?
    Address("PUT", "limits/<str:name>", "", "tenants:write", 400),
    Address("DELETE", "limits/<str:name>", "", "tenants:write", 400),
    _reading("quotas", "quotas:read"),
    Address(
        "POST",
        "quotas/check",
        "quotas:read",
        "ops:read",
        200,
        whole_tenant=True,
        answer_to_operator=400,
        text='{"hours":"1"}',
    ),
    _reading("quotas/<str:name>", "quotas:read", op=400),  # of which tenant?
    _reading("quotas/<str:name>/periods", "quotas:read", op=400),  # of which tenant?
    Address("PUT", "quotas/<str:name>", "quotas:write", "quotas:write", 400, own=True),  # of nothing
    Address("DELETE", "quotas/<str:name>", "quotas:write", "quotas:write", 204, answer_to_operator=400),
    _webhook("GET", "webhooks", 200),
    _webhook("GET", "webhooks/<str:name>", 200),
    _webhook("PATCH", "webhooks/<str:name>", 200, '{"event_types":["invoice.paid"]}'),
    _webhook("POST", "webhooks/<str:name>/rotations", 201, '{"overlap_hours":1}'),
    _webhook("POST", "webhooks/<str:name>/tests", 201),
    _webhook("GET", "webhooks/<str:name>/deliveries", 200),
    _webhook("POST", "webhooks/<str:name>/resends", 201, '{"since":"2026-01-01T00:00:00Z"}'),
    _webhook("DELETE", "webhooks/<str:name>", 204),
    _webhook("PUT", "webhooks/<str:name>", 200, '{"url":"https://127.0.0.1/"}', own=True),
    _operating("tenants"),
    _operating("tenants/<str:name>"),
    _operating("tenants/<str:name>/members"),
    _operating("tenants/<str:name>/subscriptions"),
    _operating("ownerships"),
    _operating("payers"),
    Address("GET", "plan-choices", "subscription:write", whole_tenant=True),
    Address("GET", "plan-choices/<str:name>", "subscription:write", answer=404, whole_tenant=True),
    Address("GET", "plan-change", "subscription:write", answer=404, whole_tenant=True),
    Address(  # the plans of both labs were agreed with the operator
        "PUT", "plan-change", "subscription:write", answer=409, whole_tenant=True, text='{"plan":"starter"}'
    ),
    Address("DELETE", "plan-change", "subscription:write", answer=404, whole_tenant=True),
    Address("GET", "departure", "subscription:write", answer=404, whole_tenant=True),
    Address(
        "PUT",
        "departure",
        "subscription:write",
        whole_tenant=True,
        text=f'{{"leaves_on":"{datetime.now(UTC).date() + timedelta(days=30)}"}}',
    ),
    Address("DELETE", "departure", "subscription:write", answer=204, whole_tenant=True),
    _operating("departures"),
    _operating("departures/<str:name>"),
    _writing("POST", "departures/<str:name>/endings", "tenants:write", 201, "{}"),
    _operating("sign-ups"),
    _operating("sign-ups/<str:name>"),
    _writing("POST", "sign-ups/<str:name>/decisions", "tenants:write", 400),
    _operating("sign-up-policy"),
    _writing("PUT", "sign-up-policy", "tenants:write", 200, '{"open":false}'),
    _operating("waste-rules"),
    _operating("waste-rules/<str:name>"),
    _writing("PUT", "waste-rules/<str:name>", "jobs:act", 200, '{"hours":4}'),
    _writing("DELETE", "waste-rules/<str:name>", "jobs:act", 204),
    _operating("failure-rules"),
    _operating("failure-rules/<str:name>"),
    _writing("PUT", "failure-rules/<str:name>", "credits:write", 200, '{"percent":50}'),
    _writing("DELETE", "failure-rules/<str:name>", "credits:write", 204),
    _operating("meters"),
    _operating("meters/<str:name>"),
    _writing("PUT", "meters/<str:name>", "plans:write", 200, '{"title":"Storage","unit":"GB-month"}'),
    _writing("DELETE", "meters/<str:name>", "plans:write", 204),
    _operating("plans"),
    _operating("plans/<str:name>"),
    _operating("plans/<str:name>/versions"),
    _operating("clusters"),
    _operating("clusters/<str:name>"),
    _operating("pulls"),
    _operating("quarantine"),
    _operating("unassigned-usage"),
    _operating("receivables"),
    _operating("closes"),
    _operating("closes/<str:name>"),
    _operating("closes/<str:name>/results"),
    _operating("approvals"),
    _operating("sealed-months"),
    _operating("focus-exports"),
    _writing("POST", "focus-exports", "ops:read", 400),
    _operating("focus-exports/<str:name>/file"),
    Address("GET", "proof", "", "ops:read", query="?period=2026-03"),
    _writing("POST", "tenants", "tenants:write", 400),  # what it says is nothing
    _writing("PUT", "tenants/<str:name>", "tenants:write", 200, '{"name":"Vision Lab"}'),
    _writing("PATCH", "tenants/<str:name>", "tenants:write", 200, '{"city":"Berlin"}'),
    _operating("tenants/<str:name>/members/<str:email>"),
    _writing("PUT", "tenants/<str:name>/members/<str:email>", "tenants:write", 200, '{"role":"owner"}'),
    _writing("DELETE", "tenants/<str:name>/members/<str:email>", "tenants:write", 204),
    _operating("tenants/<str:name>/invitations"),
    _writing(
        "POST",
        "tenants/<str:name>/invitations",
        "tenants:write",
        409,
        '{"email":"a@b.example","role":"viewer"}',
    ),  # no mail server is set
    _operating("tenants/<str:name>/invitations/<str:invitation>"),
    _writing("DELETE", "tenants/<str:name>/invitations/<str:invitation>", "tenants:write", 204),
    _writing("PUT", "tenants/<str:name>/subscriptions", "tenants:write", 400),
    _writing("POST", "ownerships", "tenants:write", 400),
    _operating("ownerships/<str:name>"),
    _writing("PATCH", "ownerships/<str:name>", "tenants:write", 200, "{}"),
    _writing("DELETE", "ownerships/<str:name>", "tenants:write", 204),
    _writing("POST", "payers", "tenants:write", 400),
    _operating("payers/<str:name>"),
    _writing("PATCH", "payers/<str:name>", "tenants:write", 400),
    _writing("DELETE", "plans/<str:name>", "plans:write", 409),  # a tenant is on it
    _operating("plans/<str:name>/versions/<str:day>"),
    _writing("PUT", "plans/<str:name>/versions/<str:day>", "plans:write", 400),
    _writing("DELETE", "plans/<str:name>/versions/<str:day>", "plans:write", 409),
    _writing("POST", "plans/<str:name>/versions/<str:day>/price-corrections", "plans:write", 400),
    _writing("POST", "plans/<str:name>/prices", "plans:write", 400),
    _writing("PUT", "clusters/<str:name>", "clusters:write", 200, "{}"),
    _writing("PATCH", "clusters/<str:name>", "clusters:write", 200, "{}"),
    _writing("POST", "clusters/<str:name>/pulls", "clusters:write", 409),  # only files feed it
    _writing("POST", "clusters/<str:name>/acts", "jobs:act", 400),
    _writing("PUT", "clusters/<str:name>/files/<str:file>", "imports:write", 415),
    _writing("PUT", "clusters/<str:name>/bills/<str:file>", "imports:write", 415),
    _operating("clusters/<str:name>/connection", 404),  # only files feed it
    _writing("PUT", "clusters/<str:name>/connection", "clusters:write", 409),
    Address("GET", "history", "", "audit:read"),
    _writing("POST", "tenants/<str:name>/keys", "tenants:write", 400),
    _writing("POST", "closes", "closes:write", 400),
    _writing("POST", "sealed-months", "closes:write", 400),
    _writing("POST", "approvals/<str:name>/decisions", "closes:write", 400),
    _operating("operations/<str:name>"),
    _operating("pulls/<str:name>"),
    _writing("POST", "invoices/<str:name>/credit-notes", "credits:write", 400),
    _writing("POST", "invoices/<str:name>/write-offs", "credits:write", 400),
    _writing("POST", "invoices/<str:name>/manual-payments", "payments:record", 400),
    _writing("POST", "wallets/<str:name>/grants", "credits:write", 400),
    _operating("tenants/<str:name>/dunning-pauses"),
    _writing("POST", "tenants/<str:name>/dunning-pauses", "payments:record", 400),
    _writing("DELETE", "tenants/<str:name>/dunning-pauses", "payments:record", 404),  # nothing is paused
)
