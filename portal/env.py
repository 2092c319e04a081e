"""Everything that ClusterTab reads from its environment, typed; docs/reference/settings.md describes each name."""

from __future__ import annotations

import base64
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from uuid import UUID

from portal.env_variables import SettingError, Variables
from portal.excerpt import quoted

ROOT = Path(__file__).resolve().parent.parent
SHORTEST_TOKEN = 16  # characters


@dataclass(frozen=True, kw_only=True)
class Env:
    """One instance's settings. Secrets are in no `repr`, since error reports print objects."""

    home: Path
    database_url: str | None  # None: the embedded PostgreSQL of `home`
    database_owner_url: (
        str | None
    )  # the login that owns the tables, for `migrate` alone; None: that of database_url
    database_replica_url: str | None  # a streaming standby that pages and reports are read from
    database_replica_max_lag: int  # seconds that it may be late, and is read from still
    database_pool: int  # largest number of pooled connections per process; 0: no pool
    redis_url: str | None  # None: the embedded Redis of `home`
    secret: str | None  # None: generated once into `home`
    secret_keys: list[str]  # that encrypt stored secrets; none: those in `home`
    debug: bool
    allowed_hosts: list[str]
    csrf_trusted_origins: list[str]
    https: bool
    trusted_proxies: (
        int  # how many proxies of our own append to X-Forwarded-For; 0: the header is not believed
    )
    cookie_suffix: (
        str  # browsers do not tell ports apart, so instances on one host need cookies of different names
    )
    session_hours: int  # after a sign-in; then people sign in again
    session_idle_minutes: int  # without a request, after which people sign in again; 0: no limit
    reauthentication_minutes: (
        int  # since people proved who they are, before money and secrets; 0: never again
    )
    operator_second_factor: bool  # operators have one before they see a page
    static_root: Path
    portal_url: str  # under which people reach the pages, without a slash at its end; '': nobody said
    email_url: str  # '': notices to tenants are kept here, other mail is printed
    email_from: str
    log_level: str
    heartbeat_file: Path | None  # touched by the scheduler at each of its rounds
    api: bool  # whether the REST API is served
    metrics_token: str | None  # whose bearer reads /metrics; None: operators who are signed in only
    tracing: bool  # whether traces are sent; OpenTelemetry's library reads where to
    sentry_dsn: str | None  # where unforeseen errors are reported; None: nowhere
    metrics_series: int  # of one metric there, per currency, before the rest is one series
    ledger_accounts: list[str]  # numbers of accounts of the general ledger, NAME=NUMBER
    webhook_networks: list[IPv4Network | IPv6Network]  # inner ones that webhooks may go to
    webhook_allow_http: bool  # whether their addresses may begin with http://
    webhook_ca_file: (
        Path | None
    )  # certificates of authorities that endpoints may have besides the public ones
    stripe_key: str | None  # None: nothing is collected through Stripe
    stripe_base: str  # where its API is; '': at Stripe
    stripe_webhook_secrets: list[str]  # of which one signed each notification
    retention_years: dict[str, int]  # by kind of portal.ops.retention; what is not named stays
    sealed_months: Path | None  # the directory of their files; None: no month is sealed
    sealed_months_bucket: str  # s3://bucket/prefix, which has these files; '': the directory has them
    sealed_months_endpoint: str  # where the bucket is; '': at Amazon
    seal_after_months: int  # without a change
    seal_at_night: bool  # whether months that are ready are sealed without being asked for
    stripe_account_label: str  # what this portal is called at Stripe; '': what the database says

    def __repr__(self) -> str:
        return f"Env(home={self.home})"


def read(environ: Mapping[str, str] = os.environ) -> Env:
    """Raises SettingError, in one sentence, for a value that cannot be meant."""
    read = Variables(environ)
    home = home_of(environ)
    return Env(
        home=home,
        database_url=read.text("DATABASE_URL", "") or None,
        database_owner_url=read.text("DATABASE_OWNER_URL", "") or None,
        database_replica_url=read.text("DATABASE_REPLICA_URL", "") or None,
        database_replica_max_lag=_lag(read.number("DATABASE_REPLICA_MAX_LAG", 10)),
        database_pool=read.number("DATABASE_POOL", 0),
        redis_url=redis(url) if (url := read.text("REDIS_URL", "")) else None,
        secret=read.text("SECRET_KEY", "") or None,
        secret_keys=[_encrypting(key) for key in read.words("CLUSTERTAB_SECRET_KEYS")],
        debug=read.flag("DEBUG", default=False),
        allowed_hosts=read.words("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]"),
        csrf_trusted_origins=read.words("CSRF_TRUSTED_ORIGINS"),
        https=read.flag("HTTPS", default=False),
        trusted_proxies=read.number("TRUSTED_PROXIES", 0),
        cookie_suffix=read.text("COOKIE_SUFFIX", ""),
        session_hours=read.number("SESSION_HOURS", 336),
        session_idle_minutes=read.number("SESSION_IDLE_MINUTES", 1440),
        reauthentication_minutes=read.number("REAUTHENTICATION_MINUTES", 30),
        operator_second_factor=read.flag("OPERATOR_SECOND_FACTOR", default=False),
        static_root=Path(read.text("STATIC_ROOT", str(home / "static"))),
        portal_url=_address("PORTAL_URL", read.text("PORTAL_URL", "")),
        email_url=read.text("EMAIL_URL", ""),
        email_from=read.text("EMAIL_FROM", "ClusterTab <billing@localhost>"),
        log_level=read.text("LOG_LEVEL", "INFO").upper(),
        heartbeat_file=Path(beat) if (beat := read.text("HEARTBEAT_FILE", "")) else None,
        api=read.flag("CLUSTERTAB_API", default=True),
        metrics_token=_guarding(token) if (token := read.text("CLUSTERTAB_METRICS_TOKEN", "")) else None,
        tracing=bool(_address("OTEL_EXPORTER_OTLP_ENDPOINT", read.text("OTEL_EXPORTER_OTLP_ENDPOINT", ""))),
        sentry_dsn=_reporting(dsn) if (dsn := read.text("SENTRY_DSN", "")) else None,
        metrics_series=read.number("CLUSTERTAB_METRICS_SERIES", 200),
        ledger_accounts=read.words("LEDGER_ACCOUNTS"),
        webhook_networks=[_network(word) for word in read.words("WEBHOOK_ALLOWED_NETWORKS")],
        webhook_allow_http=read.flag("WEBHOOK_ALLOW_HTTP", default=False),
        webhook_ca_file=_file("WEBHOOK_CA_FILE", name)
        if (name := read.text("WEBHOOK_CA_FILE", ""))
        else None,
        stripe_key=_collecting(key, read.text("STRIPE_MODE", "live"), base=read.text("STRIPE_API_BASE", ""))
        if (key := read.text("STRIPE_SECRET_KEY", ""))
        else None,
        stripe_base=read.text("STRIPE_API_BASE", ""),
        stripe_webhook_secrets=read.words("STRIPE_WEBHOOK_SECRETS"),
        retention_years=_years(read.words("RETENTION_YEARS")),
        sealed_months=home / Path(folder).expanduser()
        if (folder := read.text("SEALED_MONTHS_DIRECTORY", ""))
        else None,
        sealed_months_bucket=_bucket(address, read.text("SEALED_MONTHS_DIRECTORY", ""))
        if (address := read.text("SEALED_MONTHS_BUCKET", ""))
        else "",
        sealed_months_endpoint=_address("SEALED_MONTHS_ENDPOINT", read.text("SEALED_MONTHS_ENDPOINT", "")),
        seal_after_months=read.number("SEAL_AFTER_MONTHS", 12),
        seal_at_night=read.flag("SEAL_AT_NIGHT", default=False),
        stripe_account_label=_account_label(read.text("STRIPE_ACCOUNT_LABEL", "")),
    )


def home_of(environ: Mapping[str, str] = os.environ) -> Path:
    """The data directory; a relative CLUSTERTAB_HOME starts at the project's root."""
    return ROOT / Path(Variables(environ).text("CLUSTERTAB_HOME", "var")).expanduser()


def secret_key(home: Path) -> str:
    """The instance's own key: made at its first start, readable by its owner only, the same ever after."""
    return _kept(home, "secret_key", lambda: secrets.token_urlsafe(48))


def secret_keys(home: Path, *, make: bool) -> list[str]:
    """The instance's own keys for stored secrets, newest first; made once if `make`, else none before that."""
    if not make and not (home / "secret_keys").exists():
        return []
    text = _kept(home, "secret_keys", lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    return [_encrypting(key) for key in text.replace(",", " ").split()]


def _years(words: list[str]) -> dict[str, int]:
    years = {}
    for word in words:
        name, _, number = word.partition("=")
        if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= 99):
            raise SettingError(
                f"RETENTION_YEARS has {quoted(word)}; write a kind and its years, like notices=3."
            )
        years[name.strip()] = int(number)
    return years


def _lag(seconds: int) -> int:
    """The replica is looked at once a second: what it shows cannot be known to be younger."""
    if seconds < 3:
        raise SettingError(f"DATABASE_REPLICA_MAX_LAG is '{seconds}'; at least 3 seconds are needed.")
    return seconds


def _encrypting(key: str) -> str:
    """The key, if it is one. Its text is in no message."""
    try:
        if len(base64.b64decode(key, altchars=b"-_", validate=True)) == 32:
            return key
    except ValueError:
        pass
    raise SettingError(
        "CLUSTERTAB_SECRET_KEYS holds something that is no key: each is 32 bytes in URL-safe base64."
    ) from None


def _guarding(token: str) -> str:
    """The token, if it is hard to guess and fits into a header. It is in no message."""
    if len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise SettingError(
        f"CLUSTERTAB_METRICS_TOKEN must have at least {SHORTEST_TOKEN} characters and no blanks: make one with "
        "`openssl rand -hex 32`."
    )


def _reporting(dsn: str) -> str:
    """The address, if it is one of a project. Its key is in no message."""
    if re.fullmatch(r"https?://[^\s/@:]+@[^\s/@]+/(?:\S+/)?\d+", dsn):
        return dsn
    raise SettingError(
        "SENTRY_DSN must look like https://KEY@HOST/PROJECT, as Sentry shows it for a project."
    )


def _collecting(key: str, mode: str, *, base: str) -> str:
    """The key, if it is one of that mode. It is in no message."""
    if mode not in {"live", "test"}:
        raise SettingError(f"STRIPE_MODE is {quoted(mode)}; say live or test.")
    if not key.startswith(("sk_live_", "rk_live_", "sk_test_", "rk_test_")):
        raise SettingError(
            "STRIPE_SECRET_KEY is no secret key: it begins with rk_live_, sk_live_, rk_test_ or sk_test_."
        )
    if mode == "live" and not key[3:].startswith("live_"):
        raise SettingError(
            "STRIPE_SECRET_KEY is a test key: set a live one, or STRIPE_MODE=test to try things out."
        )
    if mode == "live" and base:
        raise SettingError(
            "STRIPE_API_BASE names another place than Stripe, which must not see a live key: unset it."
        )
    if mode == "test" and not key[3:].startswith("test_"):
        raise SettingError(
            "STRIPE_SECRET_KEY is a live key, but STRIPE_MODE is test: money would move. Set a test key."
        )
    return key


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        raise SettingError(
            f"WEBHOOK_ALLOWED_NETWORKS has {quoted(text)}; write networks such as 10.20.0.0/16, with no bit set "
            "behind the slash's."
        ) from None


def _file(setting: str, name: str) -> Path:
    if not (path := Path(name)).is_file():
        raise SettingError(f"{setting} is {quoted(name)}; there is no such file.")
    return path


def _account_label(text: str) -> str:
    try:
        return str(UUID(text)) if text else ""
    except ValueError:
        raise SettingError(
            f"STRIPE_ACCOUNT_LABEL is {quoted(text)}; it is an id as `./run manage check_stripe` tells it."
        ) from None


def pay_pages(env: Env) -> str:
    """Where a form may lead to besides our own pages, for the content security policy: the hosted pages to pay on."""
    if env.stripe_key is None:
        return ""
    if not env.stripe_base:
        return " https://checkout.stripe.com"
    parts = urlsplit(env.stripe_base)
    return f" {parts.scheme}://{parts.netloc}"


def _kept(home: Path, name: str, make: Callable[[], str]) -> str:
    path = home / name
    home.mkdir(parents=True, exist_ok=True)
    temp_path = home / f".{name}.{os.getpid()}"
    if not path.exists():
        handle = os.open(temp_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(make())
        try:
            os.link(temp_path, path)  # of two first starts at once, one wins and both read its key
        except FileExistsError:
            pass
        temp_path.unlink()
    return path.read_text().strip()


def database(url: str, *, pool: int, name: str = "DATABASE_URL") -> dict[str, Any]:
    """Django's settings for `postgresql://user:password@host:port/name?option=value`.

    A `host` among the options names the directory of a unix socket, as in libpq.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"} or not parts.path.strip("/"):
        raise SettingError(f"{name} must look like postgresql://user:password@host:5432/name.")
    try:
        port = str(parts.port or "")
    except ValueError:
        raise SettingError(f"The port in {name} is none.") from None
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    host = options.pop("host", None) or unquote(parts.hostname or "")
    if pool:
        options["pool"] = {"min_size": 1, "max_size": pool, "timeout": 10}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": port,
        "OPTIONS": options,
        # A pool keeps the connections itself; without one each process keeps its own for a minute.
        "CONN_MAX_AGE": 0 if pool else 60,
        "CONN_HEALTH_CHECKS": not pool,
    }


def replica(url: str, *, pool: int) -> dict[str, Any]:
    """As `database`, of one that nobody waits for: the primary answers instead."""
    config = database(url, name="DATABASE_REPLICA_URL", pool=pool)
    # Milliseconds after which a host that has vanished is given up, which PostgreSQL itself cannot say any more.
    config["OPTIONS"] = {"connect_timeout": "2", "tcp_user_timeout": "5000"} | config["OPTIONS"]
    if pool:
        config["OPTIONS"]["pool"]["timeout"] = 2
    return config


def _bucket(address: str, directory: str) -> str:
    """Without a slash at its end."""
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9._-]+)*/?", address):
        raise SettingError(f"SEALED_MONTHS_BUCKET is {quoted(address)}; write it like s3://bucket/prefix.")
    if not directory:
        raise SettingError("SEALED_MONTHS_BUCKET needs SEALED_MONTHS_DIRECTORY, where its files are read.")
    return address.rstrip("/")


def _address(name: str, url: str) -> str:
    """Without a slash at its end."""
    if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
        raise SettingError(f"{name} must look like https://billing.example.org.")
    return url.rstrip("/")


def redis(url: str) -> str:
    """The address, if it is one that Redis's client knows."""
    if urlsplit(url).scheme not in {"redis", "rediss", "unix"}:
        raise SettingError(
            "REDIS_URL must look like redis://host:6379/0, rediss://host:6379/0 or unix:///path?db=0."
        )
    return url


def broker(redis_url: str) -> str:
    """The same Redis, as Celery spells it."""
    if redis_url.startswith("unix://"):
        return "redis+socket://" + redis_url.removeprefix("unix://").replace("?db=", "?virtual_host=")
    return redis_url


def socket_url(path: Path) -> str:
    return f"unix://{quote(str(path))}?db=0"


def email(url: str) -> dict[str, Any]:
    """Django's mail settings for `console:`, `file:DIRECTORY` or `smtp[s|+tls]://user:password@host:port`."""
    parts = urlsplit(url)
    backends = "django.core.mail.backends"
    if parts.scheme == "console":
        return {"EMAIL_BACKEND": f"{backends}.console.EmailBackend"}
    if parts.scheme == "file" and parts.path:
        return {"EMAIL_BACKEND": f"{backends}.filebased.EmailBackend", "EMAIL_FILE_PATH": unquote(parts.path)}
    if parts.scheme in {"smtp", "smtps", "smtp+tls"} and parts.hostname:
        return {
            "EMAIL_BACKEND": "portal.smtp.EmailBackend",
            "EMAIL_HOST": parts.hostname,
            "EMAIL_PORT": parts.port or {"smtp": 25, "smtps": 465, "smtp+tls": 587}[parts.scheme],
            "EMAIL_HOST_USER": unquote(parts.username or ""),
            "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
            "EMAIL_USE_SSL": parts.scheme == "smtps",
            "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
            "EMAIL_TIMEOUT": 20,
        }
    raise SettingError("EMAIL_URL must be console:, file:DIRECTORY or smtp+tls://user:password@host:587.")
