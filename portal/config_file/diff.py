"""What a file changed: the configuration before beside the configuration after, in plain words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from billing.catalog import billing_periods, line_descriptions
from billing.documents.parties import buyer_fields, seller_fields
from billing.models import (
    Allowance,
    BillingPeriod,
    Commitment,
    Discount,
    Fee,
    Plan,
    PlanVersion,
    Price,
    Seller,
    Settles,
    Subscription,
)
from clusters.declared import in_order
from clusters.models import Account, Cluster, ClusterKind, Connection, Telemetry
from portal.config_file import approvals, costs, dunning, payers, schedules, taxes, wallets
from portal.core.tenants.models import Membership, Ownership, Tenant, User

NO_PASSWORD = "none yet: they set one with 'Forgot your password?' on the sign-in page"  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True)
class Thing:
    """A row as people see it, and whose usage it prices."""

    label: str
    fields: dict[str, str]
    plan: int | None = None
    tenant: int | None = None
    account: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """`field` is empty where the thing is new; `before` and `after` are texts, empty for nothing."""

    what: str
    field: str
    before: str
    after: str

    def __str__(self) -> str:
        if not self.field:
            return f"{self.what}: new" + (f" ({self.after})" if self.after else "")
        return f"{self.what}: {self.field} {self.before or 'nothing'} -> {self.after or 'nothing'}"


Snapshot = dict[tuple[str, int], Thing]


def snapshot() -> Snapshot:
    """All of the configuration, in one query per table."""
    found: Snapshot = {}
    for kind, things in (
        ("seller", _sellers()),
        ("tax rate", _told(taxes.rates_told())),
        ("cost", _told(costs.told())),
        ("cluster", _clusters()),
        ("connection", _connections()),
        ("telemetry", _telemetry()),
        ("plan", _plans()),
        ("version", _versions()),
        *((kind, _terms(model)) for kind, model in TERMS.items()),
        ("price", _prices()),
        ("tenant", _tenants()),
        ("person", _people()),
        ("member", _members()),
        ("account", _accounts()),
        ("ownership", _ownerships()),
        ("subscription", _subscriptions()),
        ("payer", _payers()),
        ("approval limit", _told(approvals.told())),
        ("dunning", _told(dunning.told())),
        ("close schedule", _told(schedules.rows())),
        ("wallets", _told(wallets.schemes_told())),
        ("grant", _told(wallets.rules_told())),
    ):
        found.update({(kind, pk): thing for pk, thing in things})
    return found


def difference(before: Snapshot, after: Snapshot) -> list[Change]:
    """One change for each thing that is new, and for each field of the others that differs."""
    changes = []
    for key, thing in after.items():
        known = before.get(key)
        if known is None:
            told = ", ".join(f"{name} {value}" for name, value in thing.fields.items() if value)
            changes.append(Change(thing.label, "", "", told))
            continue
        for name, value in thing.fields.items():
            if known.fields[name] != value:
                since = _since(key[1]) if key[0] == "tenant" and name in {"timezone", "anchor_day"} else ""
                changes.append(Change(thing.label, name, known.fields[name], value + since))
    return changes


def _since(tenant: int) -> str:
    """From when another zone or anchor day holds, where periods are there that stay as they are."""
    last = BillingPeriod.objects.filter(tenant=tenant).order_by("-end").first()
    if last is None:
        return ""
    return f", from {billing_periods.day_of(last.end, last)} on: periods that have begun or have usage stay as they are"


@dataclass(frozen=True, slots=True)
class Affected:
    """Whose usage may cost something else now, as ids."""

    plans: set[int]
    tenants: set[int]
    accounts: set[int]


def affected(before: Snapshot, after: Snapshot) -> Affected:
    """Of everything that differs between the two."""
    changed = [thing for key, thing in after.items() if before.get(key) != thing]
    return Affected(
        plans={thing.plan for thing in changed if thing.plan is not None},
        tenants={thing.tenant for thing in changed if thing.tenant is not None},
        accounts={thing.account for thing in changed if thing.account is not None},
    )


Things = Iterable[tuple[int, Thing]]


def _sellers() -> Things:
    for row in Seller.objects.order_by("pk"):
        told = seller_fields(row) | {"corrections": row.corrections, "zero_invoices": row.zero_invoices}
        yield row.pk, Thing("seller", {name: _one_line(value) for name, value in told.items()})


def _clusters() -> Things:
    for row in Cluster.objects.prefetch_related("declared_nodes").order_by("pk"):
        shares = json.dumps(row.shares, sort_keys=True) if row.shares else ""
        nodes = "; ".join(node.sentence for node in in_order(row.declared_nodes.all()))
        fields = {"kind": row.kind, "timezone": row.timezone, "shares": shares, "nodes": nodes}
        yield row.pk, Thing(f"cluster {row.name}", fields)


def _connections() -> Things:
    for row in Connection.objects.select_related("cluster").order_by("pk"):
        own = {
            "slurm_cluster": row.slurm_cluster,
            "first_usage_from": _instant(row.first_usage_from),
            "every": f"{row.every} s",
            "look_back": f"{row.look_back} h",
            "coverage_needed": _percent(row),
        }
        yield row.pk, Thing(f"connection of {row.cluster.name}", _reach(row, own))


def _telemetry() -> Things:
    for row in Telemetry.objects.select_related("cluster").order_by("pk"):
        yield row.pk, Thing(f"telemetry of {row.cluster.name}", _reach(row, {}))


def _reach(row: Connection | Telemetry, own: Mapping[str, str]) -> dict[str, str]:
    """How it is reached, with what only its kind has. Of secrets, when one was last entered; of certificates, which."""
    return {
        "url": row.base_url,
        "unix_socket": row.unix_socket,
        "ca": _fingerprint(row.ca),
        "client_certificate": _fingerprint(row.client_certificate),
        "user": row.user,
        "options": json.dumps(row.options, sort_keys=True) if row.options else "",
        **own,
        "enabled": "yes" if row.enabled else "no",
        "secrets": f"entered {row.credentials_changed_at:%Y-%m-%d %H:%M:%S.%f} UTC",
    }


def _percent(row: Connection) -> str:
    """What a Prometheus has to have seen; other sources keep a record of all."""
    return f"{row.coverage_needed} %" if row.cluster.kind == ClusterKind.PROMETHEUS else ""


def _fingerprint(pem: str) -> str:
    return f"PEM with SHA-256 {sha256(pem.encode()).hexdigest()[:16]}…" if pem else ""


def _plans() -> Things:
    for row in Plan.objects.order_by("pk"):
        yield (
            row.pk,
            Thing(
                f"plan {row.name}",
                {"currency": row.currency, "paid by": "" if row.settles == Settles.INVOICE else row.settles},
            ),
        )


def _versions() -> Things:
    for row in PlanVersion.objects.select_related("plan").order_by("pk"):
        charges = ", ".join(row.charges) or "nothing"
        yield row.pk, Thing(f"plan {row}", {"charges": charges}, plan=row.plan_id)


def _prices() -> Things:
    for row in Price.objects.select_related("version__plan", "allowance").order_by(
        "version", "position", "pk"
    ):
        label = f"plan {row.version}, price of {row.meter} {row.selector or 'for any use'}"
        fields = {
            "unit price": f"{row.unit_price.normalize():f}",
            "model": line_descriptions.scale(row),
            "allowance": row.allowance.name if row.allowance else "",
            "until": str(row.valid_until or ""),
            "place": str(row.position + 1),
        }
        yield row.pk, Thing(f"{label} from {row.valid_from}", fields, plan=row.version.plan_id)


TERMS: Mapping[str, type[Allowance | Commitment | Discount | Fee]] = {
    "allowance": Allowance,
    "fee": Fee,
    "commitment": Commitment,
    "discount": Discount,
}


def _terms(model: type[Allowance | Commitment | Discount | Fee]) -> Things:
    """No usage is rated again for them: they are read when an invoice is made."""
    rows = model._default_manager.select_related("version__plan", "tenant")
    for row in rows.order_by("version", "pk"):
        noun = model._meta.model_name
        yield (
            row.pk,
            Thing(f"plan {row.version}, {noun} {row.name}{_alone(row)}", line_descriptions.term(row)),
        )


def _alone(row: Allowance | Commitment | Discount | Fee) -> str:
    return f" of {row.tenant.slug} from {row.valid_from}" if row.tenant else ""


def _tenants() -> Things:
    for row in Tenant.objects.order_by("pk"):
        told = {"name": row.name, "timezone": row.timezone, "anchor_day": str(row.anchor_day)} | buyer_fields(
            row
        )
        fields = {name: _one_line(value) for name, value in told.items() if name != "slug"}
        fields["tax_rate"] = f"{row.tax_rate.normalize():f}"
        fields["payment_terms_days"] = str(row.payment_terms_days)
        fields["corrections"] = row.corrections
        fields["zero_invoices"] = row.zero_invoices
        fields |= taxes.told(row)
        yield row.pk, Thing(f"tenant {row.slug}", fields)


def _people() -> Things:
    for row in User.objects.order_by("pk").only("email", "password"):
        fields = {"password": "" if row.has_usable_password() else NO_PASSWORD}
        yield row.pk, Thing(f"person {row.email}", fields)


def _members() -> Things:
    for row in Membership.objects.select_related("tenant", "user").order_by("pk"):
        yield row.pk, Thing(f"member {row.user.email} of {row.tenant.slug}", {"role": row.role})


def _accounts() -> Things:
    for row in Account.objects.select_related("cluster").order_by("pk"):
        yield row.pk, Thing(f"account {row}", {})


def _ownerships() -> Things:
    rows = Ownership.objects.select_related("account__cluster", "tenant", "project").order_by("pk")
    for row in rows:
        yield (
            row.pk,
            Thing(
                f"account {row.account} of {row.tenant.slug}",
                {"project": row.project.name, "since": _instant(row.since), "until": _instant(row.until)},
                account=row.account_id,
            ),
        )


def _subscriptions() -> Things:
    for row in Subscription.objects.select_related("tenant", "plan").order_by("pk"):
        fields = {"plan": row.plan.name, "since": _instant(row.since), "until": _instant(row.until)}
        yield row.pk, Thing(f"subscription of {row.tenant.slug}", fields, tenant=row.tenant_id)


def _payers() -> Things:
    for pk, tenant, label, fields in payers.told():
        yield pk, Thing(label, fields, tenant=tenant)


def _told(rows: Iterable[tuple[int, str, dict[str, str]]]) -> Things:
    for pk, label, fields in rows:
        yield pk, Thing(label, fields)


def _instant(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else ""


def _one_line(text: str) -> str:
    return " / ".join(text.splitlines())
