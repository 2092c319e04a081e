"""Whatever operators' scripts send, the answer is a refusal that says why, never a fault. Cases 1, 5 and 61."""

from __future__ import annotations

from typing import Any

import pytest

from portal.api.resources.operators.routes import routes
from tests.api.addresses import filled
from tests.api.door import Door
from tests.web.house import House

pytestmark = pytest.mark.django_db

NAMES = ("%00", "..%2F", "a" * 300, "%F0%9F%92%A9")
VALUES: tuple[Any, ...] = (
    None, 0, -1, 10**18, True, "", " ", "x", "a" * 3000, "\u0001", "💩", [], [None], [[]], {}, {"amount": "1"},
    {"amount": "1e9", "currency": "USD"}, {"amount": "9" * 40, "currency": "USD"}, "0001-01-01", "9999-12-31",
    "2026-02-30", "2026-01-01T00:00:00Z", {"a": {"b": {"c": "d"}}}, [{"plan": "x", "from": "9999-12-31"}],
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(autouse=True)
def _without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.api.limits.WRITES", 100_000)
    monkeypatch.setattr("portal.api.limits.REQUESTS", 100_000)


@pytest.mark.parametrize("name", NAMES)
def test_api_061_odd_names_in_an_address_are_no_fault_of_ours(house: House, op: Door, name: str) -> None:
    for route in routes:
        pattern = str(route.pattern)
        if "<" not in pattern:
            continue
        path = "/" + filled(pattern, {pattern.split("/", maxsplit=1)[0]: name})
        for method in METHODS:
            answer = op.send(method, path, {} if method in {"POST", "PUT", "PATCH"} else None)
            assert answer.status < 500, (method, path, answer.raw)


def bodies(view: Any) -> list[dict[str, Any]]:
    """Each field with each odd value, the others left out; and all fields with one value."""
    kind = view.request_serializer
    fields = [*kind().get_fields()] if kind is not None else []
    single = [{field: value} for field in fields for value in VALUES]
    return single + [dict.fromkeys(fields, value) for value in VALUES]


@pytest.mark.peers  # takes long
@pytest.mark.parametrize("route", [str(route.pattern) for route in routes])
def test_api_061_odd_values_in_a_body_are_no_fault_of_ours(house: House, op: Door, route: str) -> None:
    view = next(one for one in routes if str(one.pattern) == route).callback.view_class  # type: ignore[attr-defined]
    names = {"tenants": "vision-lab", "plans": "vision-deal", "clusters": "gpu1"}
    names |= {"invoices": str(house.invoice.number), "wallets": "wal_0000000000000"}
    path = "/" + filled(route, names)
    for method in ("POST", "PUT", "PATCH"):
        if not hasattr(view, method.lower()):
            continue
        for place, body in enumerate(bodies(view)):
            answer = op.send(method, path, body, **{"Idempotency-Key": f"{method}-{place}"})
            assert answer.status < 500, (method, path, body, answer.raw)
