"""What a file changed: the configuration before and the configuration after, in plain words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from operator import attrgetter
from typing import Any

from django.db.models import Model

from billing.catalog import billing_periods, line_descriptions
from billing.catalog.version_terms import Term
from billing.documents.parties import buyer_fields, seller_fields
from billing.models import (
    Allowance,
    ApprovalLimit,
    BillingContact,
    BillingPeriod,
    CloseSchedule,
    Commitment,
    ConcurrencyLimit,
    CreditsGo,
    DebtTerms,
    Discount,
    DunningPolicy,
    FailureRule,
    Fee,
    GrantRule,
    OperatingCost,
    Payer,
    Plan,
    PlanQuota,
    PlanVersion,
    Price,
    Quota,
    Seller,
    SignUpPolicy,
    Subscription,
    TaxRate,
    WalletScheme,
    WasteRule,
)
from billing.models.contacts import TOPICS
from billing.rules.dunning_defaults import Policy
from billing.rules.money import Money
from clusters.declared_nodes import in_order
from clusters.models import Account, ApiServer, Cluster, ClusterKind, Connection, DeclaredMeter, Telemetry
from portal.config_file import failures, limits, plans, quotas, waste
from portal.config_file.identity_providers import described
from portal.config_file.wallets import debt_described
from portal.core.tenants.models import Brand, IdentityProvider, Membership, Ownership, Tenant, User
from portal.excerpt import quoted

NO_PASSWORD = "none yet: they set one with 'Forgot your password?' on the sign-in page"  # noqa: S105 - a sentence
POLICY = " ".join(Policy.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Thing:
    """A row as people see it, and whose usage it prices."""

    label: str
    fields: Mapping[str, str]
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
    return {key: thing for kind in KINDS for key, thing in kind.things()}


def difference(before: Snapshot, after: Snapshot) -> list[Change]:
    """One change for each thing that is new, and for each field of the others that differs."""
    changes = []
    for key, thing in after.items():
        earlier = before.get(key)
        if earlier is None:
            fields = ", ".join(f"{name} {value}" for name, value in thing.fields.items() if value)
            changes.append(Change(thing.label, "", "", fields))
            continue
        for name, value in thing.fields.items():
            if earlier.fields[name] != value:
                since = _since(key[1]) if key[0] == "tenant" and name in {"timezone", "anchor_day"} else ""
                changes.append(Change(thing.label, name, earlier.fields[name], value + since))
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
    """Of everything that differs between the two, but for what prices come to: rated usage does not say that."""
    changed = [
        thing
        for key, thing in after.items()
        if (earlier := before.get(key)) != thing
        and not (
            key[0] == "price" and earlier is not None and _without_amount(earlier) == _without_amount(thing)
        )
    ]
    return Affected(
        plans={thing.plan for thing in changed if thing.plan is not None},
        tenants={thing.tenant for thing in changed if thing.tenant is not None},
        accounts={thing.account for thing in changed if thing.account is not None},
    )


def _without_amount(price: Thing) -> dict[str, str]:
    return {name: text for name, text in price.fields.items() if name not in {"unit price", "model"}}


def text_of(value: Any) -> str:
    """A column's value as a line of changes has it; "" for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True) if value else ""
    return " / ".join(str(value).splitlines())


@dataclass(frozen=True, slots=True)
class Kind:
    """A table of the configuration: how its rows are called, and what of them is compared, in this order."""

    name: str
    model: type[Model]
    label: str | Callable[[Any], str]  # a format of the row, and of the slug of its tenant
    columns: str | Callable[[Any], Mapping[str, Any]]  # `key=attribute`, or names where both are the same
    related: str = ""
    prices: str = ""  # as columns: the ids of the plan, tenant or account whose usage is rated again for it
    order: str = "pk"
    prefetched: str = ""

    def things(self) -> Iterable[tuple[tuple[str, int], Thing]]:
        """One query, and one for what is prefetched."""
        rows = self.model._default_manager.order_by(*self.order.split())
        rows = rows.prefetch_related(*self.prefetched.split())
        for row in rows.select_related(*self.related.split()) if self.related else rows:
            fields = _columns(row, self.columns) if isinstance(self.columns, str) else self.columns(row)
            texts = {name: text_of(value) for name, value in fields.items()}
            yield (self.name, row.pk), Thing(self._named(row), texts, **_columns(row, self.prices))

    def _named(self, row: Any) -> str:
        if not isinstance(self.label, str):
            return self.label(row)
        tenant = getattr(row, "tenant", None)
        return self.label.format(row, tenant.slug if tenant else "everyone")


def _columns(row: Any, columns: str) -> dict[str, Any]:
    pairs = [column.partition("=") for column in columns.split()]
    return {name: attrgetter(path or name)(row) for name, _, path in pairs}


def _seller(row: Seller) -> Mapping[str, Any]:
    return {**seller_fields(row), "corrections": row.corrections, "zero_invoices": row.zero_invoices}


def _cost_label(row: OperatingCost) -> str:
    cluster = row.cluster.name if row.cluster else "every cluster"
    return f"operating cost of {row.gpu_model or 'every model'} in {cluster} from {row.valid_from}"


def _cost(row: OperatingCost) -> Mapping[str, Any]:
    return {"per GPU-hour": f"{text_of(row.amount)} {row.currency}"}


def _cluster(row: Cluster) -> Mapping[str, Any]:
    nodes = "; ".join(node.sentence for node in in_order(row.declared_nodes.all()))
    columns = _columns(row, "kind timezone shares energy_meter=energy_meter_id")
    return {**columns, "nodes": nodes}


def _connection(row: Connection) -> Mapping[str, Any]:
    return _endpoint(
        row,
        slurm_cluster=row.slurm_cluster,
        first_usage_from=row.first_usage_from,
        every=f"{row.every} s",
        look_back=f"{row.look_back} h",
        # What a Prometheus has to have seen; other sources have a record of all.
        coverage_needed=f"{row.coverage_needed} %" if row.cluster.kind == ClusterKind.PROMETHEUS else "",
    )


def _endpoint(row: Connection | Telemetry | ApiServer, **own: Any) -> Mapping[str, Any]:
    """With what only its kind has. Of secrets, when one was last entered; of certificates, which."""
    return {
        "url": row.base_url,
        "unix_socket": row.unix_socket,
        "ca": _fingerprint(row.ca),
        "client_certificate": _fingerprint(row.client_certificate),
        **{name: getattr(row, name) for name in row.OWN_COLUMNS},
        **own,
        "enabled": row.enabled,
        "secrets": f"entered {row.credentials_changed_at:%Y-%m-%d %H:%M:%S.%f} UTC",
    }


def _fingerprint(pem: str) -> str:
    return f"PEM with SHA-256 {sha256(pem.encode()).hexdigest()[:16]}…" if pem else ""


def _version(row: PlanVersion) -> Mapping[str, Any]:
    return {"charges": row.charges or "nothing"}


def _price_label(row: Price) -> str:
    return f"plan {row.version}, price of {row.meter} {row.selector or 'for any use'} from {row.valid_from}"


def _price(row: Price) -> Mapping[str, Any]:
    return {
        "unit price": row.unit_price,
        "model": line_descriptions.scale(row),
        "allowance": row.allowance and row.allowance.name,
        "until": row.valid_until,
        "place": row.position + 1,
    }


def _term(model: type[Term]) -> Kind:
    """No usage is rated again for them: they are read when an invoice is made."""
    noun = model.__name__.lower()

    def label(row: Term) -> str:
        alone = f" of {row.tenant.slug} from {row.valid_from}" if row.tenant else ""
        return f"plan {row.version}, {noun} {row.name}{alone}"

    return Kind(noun, model, label, line_descriptions.term, "version__plan tenant", order="version pk")


def _tenant(row: Tenant) -> Mapping[str, Any]:
    columns = {"name": row.name, "timezone": row.timezone, "anchor_day": row.anchor_day} | buyer_fields(row)
    others = ("tax_rate", "payment_terms_days", "corrections", "zero_invoices", "country", "region")
    columns |= {name: getattr(row, name) for name in (*others, "tax_treatment", "tax_reason")}
    columns |= {name: getattr(row, name) or "" for name in ("second_factor", "members_see_own")}
    columns["tax_category"] = "" if row.tax_category == "standard" else row.tax_category
    return {name: value for name, value in columns.items() if name != "slug"}


def _person(row: User) -> Mapping[str, Any]:
    return {"password": "" if row.has_usable_password() else NO_PASSWORD}


def _bound_label(row: ApprovalLimit) -> str:
    return f"approval limit of {row.tenant.slug if row.tenant else 'everyone'}, {row.metric} {row.currency}".strip()


def _schedule(row: CloseSchedule) -> Mapping[str, Any]:
    return {name: getattr(row, name) or "by hand" for name in ("preview_day", "issue_day", "since")}


def _scheme(row: WalletScheme) -> Mapping[str, Any]:
    return {
        "for": row.scope,
        "overdraft": Money.from_minor(row.overdraft, row.unit).text,
        "from": row.since,
        "credits": "" if row.credits == CreditsGo.WALLET else row.credits,
    }


def _grant_label(row: GrantRule) -> str:
    return f"grant {quoted(row.name)} of {row.scheme.tenant.slug} in {row.scheme.unit}"


def _grant(row: GrantRule) -> Mapping[str, Any]:
    amount, cap = (
        None if minor is None else Money.from_minor(minor, row.scheme.unit).text
        for minor in (row.amount, row.cap)
    )
    return {
        "amount": amount,
        "every": row.every,
        "from": row.begins_at,
        "until": row.ends_at,
        "cap": cap,
        "priority": row.priority,
        "lasts_days": row.lasts_days,
    }


KINDS = (
    Kind("brand", Brand, "brand", "name color logo=logo_id"),
    Kind("seller", Seller, "seller", _seller),
    Kind("tax rate", TaxRate, "tax rate {0}", lambda row: {"rate": f"{text_of(row.rate)} %"}),
    Kind("cost", OperatingCost, _cost_label, _cost, "cluster"),
    Kind("cluster", Cluster, "cluster {0.name}", _cluster, prefetched="declared_nodes"),
    Kind("meter", DeclaredMeter, "meter {0}", "title unit counted per_unit decimals dimensions unit_code"),
    Kind("connection", Connection, "connection of {0.cluster.name}", _connection, "cluster"),
    Kind("telemetry", Telemetry, "telemetry of {0.cluster.name}", _endpoint, "cluster"),
    Kind("api_server", ApiServer, "API server of {0.cluster.name}", _endpoint, "cluster"),
    Kind("sign_up", SignUpPolicy, "sign_up", "open approval card domain_limit refused_domains"),
    Kind("plan", Plan, "plan {0.name}", plans.described),
    Kind("version", PlanVersion, "plan {0}", _version, "plan", "plan=plan_id"),
    *(_term(model) for model in (Allowance, Fee, Commitment, Discount)),
    Kind(
        "price",
        Price,
        _price_label,
        _price,
        "version__plan allowance",
        "plan=version.plan_id",
        "version position pk",
    ),
    Kind("tenant", Tenant, "tenant {0.slug}", _tenant),
    Kind("person", User, "person {0.email}", _person),
    Kind("contact", BillingContact, "contact {0.email} of {1}", " ".join(TOPICS), "tenant"),
    Kind("member", Membership, "member {0.user.email} of {1}", "role", "tenant user"),
    Kind("account", Account, "account {0}", "", "cluster"),
    Kind(
        "ownership",
        Ownership,
        "account {0.account} of {1}",
        "project=project.name since until",
        "account__cluster tenant project",
        "account=account_id",
    ),
    Kind(
        "subscription",
        Subscription,
        "subscription of {1}",
        "plan=plan.name since until",
        "tenant plan",
        "tenant=tenant_id",
    ),
    Kind("payer", Payer, "{0.payer.slug} pays for {1}", "since until", "tenant payer", "tenant=tenant_id"),
    Kind("approval limit", ApprovalLimit, _bound_label, lambda row: {"limit": row.limit or "none"}, "tenant"),
    Kind("dunning", DunningPolicy, "dunning of {1} from {0.since}", POLICY, "tenant"),
    Kind("close schedule", CloseSchedule, "close schedule of {1}", _schedule, "tenant"),
    Kind("wallets", WalletScheme, "wallets of {1} in {0.unit}", _scheme, "tenant"),
    Kind("grant", GrantRule, _grant_label, _grant, "scheme__tenant"),
    Kind(
        "debt",
        DebtTerms,
        "debt of {0.scheme.tenant.slug} in {0.scheme.unit}",
        debt_described,
        "scheme__tenant",
    ),
    Kind("provider", IdentityProvider, "identity provider {0}", described, prefetched="grants__tenant"),
    Kind(
        "plan quota",
        PlanQuota,
        "plan {0.version}, quota {0.name}",
        quotas.terms_described,
        "version__plan",
        order="version pk",
    ),
    Kind("quota", Quota, "quota {0.name} of {1}", quotas.described, "tenant project borrows_from"),
    Kind("waste rule", WasteRule, "waste rule {0.name}", waste.described),
    Kind("failure rule", FailureRule, "failure rule {0.name}", failures.described),
    Kind("limit", ConcurrencyLimit, "limit {0.name} of {1}", limits.described, "tenant project"),
)
