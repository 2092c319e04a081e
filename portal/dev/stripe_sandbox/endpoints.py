"""Webhook endpoints, events and the account itself."""

from __future__ import annotations

import copy

from portal.dev.stripe_sandbox import listing
from portal.dev.stripe_sandbox.errors import Json, invalid
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import ACCOUNT, State


def make(state: State, *, url: str, secret: str | None = None, events: list[str] | None = None) -> Json:
    endpoint = state.new(
        "webhook_endpoint", "we", enabled_events=events or ["*"], metadata={}, status="enabled", url=url
    )
    state.hidden(endpoint["id"])["secrets"] = [secret or f"whsec_{state.new_id('x')[2:]}"]
    return endpoint


def create(call: Call) -> Json:
    """The only answer that has the secret."""
    if not call.params["url"].startswith(("http://", "https://")):
        raise invalid(
            "Invalid URL: it has to begin with https:// or http://.", param="url", code="url_invalid"
        )
    endpoint = make(call.state, url=call.params["url"], events=call.params["enabled_events"])
    endpoint |= call.fields("description", "api_version")
    endpoint["metadata"] = merged({}, call.get("metadata"))
    return copy.deepcopy(endpoint) | {"secret": call.state.hidden(endpoint["id"])["secrets"][0]}


retrieve = listing.named("webhook_endpoint")


def update(call: Call) -> Json:
    endpoint = retrieve(call)
    endpoint |= call.fields("description", "enabled_events", "url")
    endpoint["metadata"] = merged(endpoint["metadata"], call.params.get("metadata"))
    if "disabled" in call.params:
        endpoint["status"] = "disabled" if call.params["disabled"] else "enabled"
    return endpoint


def delete(call: Call) -> Json:
    endpoint = retrieve(call)
    del call.state.data.objects["webhook_endpoint"][endpoint["id"]]
    waiting = call.state.data.deliveries
    waiting[:] = [one for one in waiting if one["endpoint"] != endpoint["id"]]
    return {"id": endpoint["id"], "object": "webhook_endpoint", "deleted": True}


list_ = listing.listed("webhook_endpoint")


retrieve_event = listing.named("event")


def list_events(call: Call) -> Json:
    """Those of the last 30 days; `delivery_success=false` lists what some endpoint did not take yet."""
    events = call.state.all("event")
    if "type" in call.params and "types" in call.params:
        raise invalid("Give type or types, not both.", param="types")
    types = call.params.get("types") or ([call.params["type"]] if "type" in call.params else [])
    if len(types) > 20:
        raise invalid("types may name at most 20 events.", param="types")
    if types:
        events = [event for event in events if any(fits(event["type"], one) for one in types)]
    if "delivery_success" in call.params:
        failed = {one["event"] for one in call.state.data.deliveries if one["state"] != "delivered"}
        events = [event for event in events if (event["id"] not in failed) == call.params["delivery_success"]]
    return listing.page(call, events, url="/v1/events")


def fits(kind: str, pattern: str) -> bool:
    return kind == pattern or (pattern.endswith("*") and kind.startswith(pattern[:-1]))


def account(_: Call) -> Json:
    return {
        "id": ACCOUNT,
        "object": "account",
        "business_profile": {"name": "ClusterTab sandbox", "support_email": None, "url": None},
        "business_type": "company",
        "capabilities": {"card_payments": "active", "sepa_debit_payments": "active"},
        "charges_enabled": True,
        "country": "DE",
        "default_currency": "eur",
        "details_submitted": True,
        "email": None,
        "metadata": {},
        "payouts_enabled": True,
        "type": "standard",
    }
