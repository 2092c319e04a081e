"""Identity providers in a configuration file: how they are reached, for whom they speak, and what they give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from portal.config_file import credential_input
from portal.config_file.credential_input import SecretText
from portal.config_file.entries import Entry, Rule, key
from portal.config_file.plan_entries import Slug
from portal.config_file.toml_table import ConfigError, Table
from portal.core.tenants.identity_providers import Grant, put_provider
from portal.core.tenants.models import IdentityProvider, Role, Tenant
from portal.core.tenants.models.sign_on import LONGEST_CLAIM
from portal.excerpt import quoted

DOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+\Z", re.ASCII
)
SCOPE = re.compile(r"[!#-\[\]-~]{1,100}\Z", re.ASCII)  # RFC 6749, appendix A.4


def _issuer(text: str) -> None:
    try:
        parts = urlsplit(text)
        local = parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = False
    if not (parts.scheme == "https" or (parts.scheme == "http" and local)) or not parts.hostname:
        raise ValueError("it begins with https:// and names the issuer, such as https://login.example.org.")
    if parts.query or parts.fragment or parts.username or not text.isascii() or not text.isprintable():
        raise ValueError("it has neither user nor query: write the issuer alone.")


def _domain(text: str) -> None:
    if not DOMAIN.match(text):
        raise ValueError("it is no domain in lower case, such as example.org.")


def described(row: IdentityProvider) -> Mapping[str, Any]:
    """By column, with all that it gives; of its secret, whether it is another one than before."""
    grants = sorted(f"{grant.role} of {grant.tenant.slug} for {grant}" for grant in row.grants.all())
    names = ("title", "url", "client_id", "domains", "scopes", "groups_claim", "tenant_claim")
    digest = sha256(row.client_secret.token.encode()).hexdigest()[:16]  # of what is encrypted anew each time
    return {
        **{name: getattr(row, name) or "" for name in names},
        "client_secret": f"encrypted, as {digest}" if row.client_secret else "",
        "operators": row.operators,
        "sign_out": row.sign_out,
        "enabled": row.enabled,
        "grants": "; ".join(grants),
    }


Claim = Annotated[str, Rule(longest=LONGEST_CLAIM)]


class IdentityGrantEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "grant"
    tenant: Slug
    role: Role
    domain: Annotated[str, Rule(longest=253, check=_domain)] = ""
    claim: Claim = ""
    group: Claim = ""

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        del values
        if not any(table.data.get(name) for name in ("domain", "claim", "group")):
            table.wrong("group", "is missing, and so are `domain` and `claim`: say who gets the role.")

    @property
    def identity(self) -> str:
        return " ".join((self.tenant, f"domain={self.domain}", f"claim={self.claim}", f"group={self.group}"))

    @property
    def grant(self) -> Grant:
        """Raises ConfigError."""
        tenant = Tenant.objects.filter(slug=self.tenant).first()
        if tenant is None:
            raise ConfigError(
                f"tenant is {quoted(self.tenant)}, which neither the file nor the database has."
            )
        return Grant(tenant=tenant, role=self.role, domain=self.domain, claim=self.claim, group=self.group)


class IdentityProviderEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "identity_provider"
    named_by: ClassVar[str] = "name"
    name: Slug
    title: Annotated[str, Rule(filled=True, longest=60)] | None = None
    url: Annotated[str, Rule(filled=True, longest=500, check=_issuer)] | None = None
    client_id: Annotated[str, Rule(filled=True, longest=191)] | None = None
    client_secret: Annotated[SecretText, Rule(value=credential_input.text)] | None = None
    domains: list[str] | None = None
    scopes: list[str] | None = None
    groups_claim: Annotated[str, Rule(filled=True, longest=LONGEST_CLAIM)] | None = None
    tenant_claim: Claim | None = None
    operators: bool | None = None
    sign_out: bool | None = None
    enabled: bool | None = None
    grants: list[IdentityGrantEntry] | None = key(name="grant", default=None)  # [] takes them away

    @property
    def identity(self) -> str:
        return self.name

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        for domain in values.get("domains", ()):
            if not DOMAIN.match(domain):
                table.wrong("domains", f"has {quoted(domain)}, which is no domain in lower case.")
        for scope in values.get("scopes", ()):
            if not SCOPE.match(scope):
                table.wrong("scopes", f"has {quoted(scope)}, which is no scope.")
        for grant in values.get("grants", ()):
            if grant.claim and values.get("tenant_claim") == "":
                table.wrong("tenant_claim", "is empty, but a grant asks for a claim.")

    def write(self) -> None:
        """Raises ConfigError and SignOnError."""
        row = IdentityProvider.objects.filter(name=self.name).first()
        if row is None:
            for name in ("title", "url", "client_id", "client_secret", "domains"):
                if not getattr(self, name):
                    raise ConfigError(f"{name} is missing.")
        secret = None if self.client_secret is None else self.client_secret.reveal()
        row = put_provider(
            name=self.name,
            columns=self.columns("name", "client_secret"),
            secret=secret,
            grants=None if self.grants is None else [entry.grant for entry in self.grants],
        )
        for grant in row.grants.all():
            if grant.claim and not row.tenant_claim:
                raise ConfigError("tenant_claim is missing, but a grant asks for a claim.")
            if grant.domain and grant.domain not in row.domains:
                raise ConfigError(f"domains does not have {quoted(grant.domain)}, for which a grant asks.")
