"""Webhook endpoints, events and the account itself."""

from __future__ import annotations

import copy

from portal.dev.stripe_sandbox import listing
from portal.dev.stripe_sandbox.calls import Call, merged
from portal.dev.stripe_sandbox.errors import Json, invalid
from portal.dev.stripe_sandbox.state import ACCOUNT, World


def make(world: World, *, url: str, secret: str | None = None, events: list[str] | None = None) -> Json:
    made = world.new(
        "webhook_endpoint", "we", enabled_events=events or ["*"], metadata={}, status="enabled", url=url
    )
    world.hidden(made["id"])["secrets"] = [secret or f"whsec_{world.new_id('x')[2:]}"]
    return made


def create(call: Call) -> Json:
    """The only answer that has the secret."""
    if not call.params["url"].startswith(("http://", "https://")):
        raise invalid(
            "Invalid URL: it has to begin with https:// or http://.", param="url", code="url_invalid"
        )
    made = make(call.world, url=call.params["url"], events=call.params["enabled_events"])
    made |= call.given("description", "api_version")
    made["metadata"] = merged({}, call.get("metadata"))
    return copy.deepcopy(made) | {"secret": call.world.hidden(made["id"])["secrets"][0]}


def retrieve(call: Call) -> Json:
    return call.world.named("webhook_endpoint", call.ids[0], param="id", in_path=True)


def update(call: Call) -> Json:
    endpoint = retrieve(call)
    endpoint |= call.given("description", "enabled_events", "url")
    endpoint["metadata"] = merged(endpoint["metadata"], call.params.get("metadata"))
    if "disabled" in call.params:
        endpoint["status"] = "disabled" if call.params["disabled"] else "enabled"
    return endpoint


def delete(call: Call) -> Json:
    endpoint = retrieve(call)
    del call.world.state.objects["webhook_endpoint"][endpoint["id"]]
    waiting = call.world.state.deliveries
    waiting[:] = [one for one in waiting if one["endpoint"] != endpoint["id"]]
    return {"id": endpoint["id"], "object": "webhook_endpoint", "deleted": True}


def list_(call: Call) -> Json:
    return listing.page(call, call.world.all("webhook_endpoint"), url="/v1/webhook_endpoints")


def retrieve_event(call: Call) -> Json:
    return call.world.named("event", call.ids[0], param="id", in_path=True)


def list_events(call: Call) -> Json:
    """Those of the last 30 days; `delivery_success=false` lists what some endpoint did not take yet."""
    found = call.world.all("event")
    if "type" in call.params and "types" in call.params:
        raise invalid("Give type or types, not both.", param="types")
    wanted = call.params.get("types") or ([call.params["type"]] if "type" in call.params else [])
    if len(wanted) > 20:
        raise invalid("types may name at most 20 events.", param="types")
    if wanted:
        found = [event for event in found if any(fits(event["type"], one) for one in wanted)]
    if "delivery_success" in call.params:
        failed = {one["event"] for one in call.world.state.deliveries if one["state"] != "delivered"}
        found = [event for event in found if (event["id"] not in failed) == call.params["delivery_success"]]
    return listing.page(call, found, url="/v1/events")


def fits(kind: str, wanted: str) -> bool:
    return kind == wanted or (wanted.endswith("*") and kind.startswith(wanted[:-1]))


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
