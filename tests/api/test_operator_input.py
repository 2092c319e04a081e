"""Whatever operators' scripts send, the answer is a refusal that says why, never a fault. Cases 1, 5 and 61."""

from __future__ import annotations

from collections.abc import Iterator
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
SPOILT: tuple[Any, ...] = (None, "9" * 60, f"0.{'1' * 60}", "-1", "1e9", 7, [None], {"a": None}, "💩")
PLAN: dict[str, Any] = {
    "currency": "EUR",
    "settles": "invoice",
    "public": True,
    "charges": ["gpu"],
    "allowance": [{"name": "included", "hours": "10", "rollover": True}],
    "fee": [{"name": "Base", "amount": "100", "in_advance": True}],
    "commitment": [{"amount": "1000", "overage_factor": "1.5"}],
    "discount": [
        {"name": "Start", "percent": "10", "from": "2026-01-01", "until": "2026-07-01"},
        {"name": "Friend", "amount": "5", "tenant": "vision-lab", "from": "2026-01-01"},
    ],
    "quota": [
        {
            "name": "most",
            "measure": "money",
            "every": "month",
            "amount": "100",
            "thresholds": ["0.8"],
            "repeat_every": "0.1",
            "reservation_cap": "50",
        }
    ],
    "price": [
        {"meter": "gpu-hour", "unit_price": "1.50", "allowance": "included", "from": "2026-01-01"},
        {
            "meter": "gpu-hour",
            "where": {"queue": ["bulk"]},
            "model": "package",
            "package": "10",
            "package_price": "8",
        },
        {
            "meter": "gpu-hour",
            "where": {"qos": ["low"]},
            "hours": [{"days": "mon", "from": "00:00", "to": "06:00", "zone": "cluster"}],
            "model": "graduated",
            "tiers": [{"up_to": "100", "unit_price": "1"}, {"unit_price": "0.5"}],
        },
    ],
}
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


@pytest.mark.parametrize("value", SPOILT, ids=str)
def test_api_061_a_value_that_is_wrong_within_a_right_plan_is_no_fault_of_ours(
    house: House, op: Door, value: Any
) -> None:
    path = "/plans/deal/versions/2026-01-01?dry_run=true"
    assert op.send("PUT", path, PLAN).status == 200
    for place, body in spoilt(PLAN, value):
        answer = op.send("PUT", path, body)
        assert answer.status < 500, (place, answer.raw)
    for place, body in spoilt(PLAN["price"][2], value):
        answer = op.send("POST", "/plans/vision-deal/prices?dry_run=true", {**body, "from": "2026-01-01"})
        assert answer.status < 500, (place, answer.raw)


def spoilt(body: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """The same body with the value in each place of it in turn, and in each list once more."""
    if isinstance(body, dict):
        for name, inner in body.items():
            yield name, {**body, name: value}
            yield from ((f"{name}.{place}", {**body, name: one}) for place, one in spoilt(inner, value))
    elif isinstance(body, list):
        yield "[]", [*body, value]
        for number, inner in enumerate(body):
            others = body[:number], body[number + 1 :]
            yield from (
                (f"{number}.{place}", [*others[0], one, *others[1]]) for place, one in spoilt(inner, value)
            )


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
