"""Django's settings. What differs between instances comes from portal/env.py; the rest is decided here."""

from __future__ import annotations

import django_stubs_ext

from portal import env as environment
from portal import instance, patience, queues
from portal.core.audit.actor import NamingCursor
from portal.ops import logs

django_stubs_ext.monkeypatch()  # lets ModelAdmin[Model] and its like be written outside of type checking

ENV = environment.read()
ROOT = environment.ROOT

SECRET_KEY = ENV.secret or environment.secret_key(ENV.home)
# Of an embedded instance they are made once. Whoever runs a database of their own keeps the keys apart from it.
CLUSTERTAB_SECRET_KEYS = ENV.secret_keys or environment.secret_keys(ENV.home, make=not ENV.database_url)
DEBUG = ENV.debug
ALLOWED_HOSTS = ENV.allowed_hosts
CSRF_TRUSTED_ORIGINS = ENV.csrf_trusted_origins

INSTALLED_APPS = [
    "portal.web",
    "portal.admin_app.Admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.usersessions",
    "pgtrigger",
    "portal.core.outbox",
    "portal.core.audit",
    "portal.core.tenants",
    "portal.core.events",
    "portal.core.webhooks",
    "clusters",
    "billing",
    "portal.api",
    "portal.ops",
]

MIDDLEWARE = [
    "portal.ops.logs.RequestLog",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "portal.ops.headers.Compression",
    "portal.api.middleware.Api",
    "portal.ops.headers.ContentSecurityPolicy",
    "portal.ops.headers.Private",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "portal.web.reader_language.ReaderLanguage",
    "portal.core.audit.middleware.Acting",  # names the person behind every change that a request makes
    "portal.core.replica.OwnChanges",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "portal.web.sign_in.SessionLimits",
    "portal.web.sign_in.OperatorSecondFactor",
    "portal.web.support_views.SupportViews",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "portal.ops.headers.NoNul",
    "portal.web.error_pages.ErrorPages",
]

ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.web.sign_in.account_frame",
                "portal.web.brand.shown_brand",
            ],
            "builtins": ["django.templatetags.i18n"],
        },
    },
]

DATABASE_URL = ENV.database_url or instance.installed_database_url(ENV.home)
# Who migrates. An instance with one login for everything works too: then it owns the tables while pages are served.
DATABASE_OWNER_URL = (
    ENV.database_owner_url or ENV.database_url or instance.installed_database_url(ENV.home, owner=True)
)
DATABASES = {"default": environment.database(DATABASE_URL, pool=ENV.database_pool)}
if ENV.database_replica_url:
    DATABASES["replica"] = environment.replica(ENV.database_replica_url, pool=ENV.database_pool)
if ENV.database_pool:
    DATABASES = {name: patience.limit(database) for name, database in DATABASES.items()}
DATABASE_REPLICA_MAX_LAG = ENV.database_replica_max_lag
for config in DATABASES.values():
    config["OPTIONS"]["cursor_factory"] = NamingCursor
    config["OPTIONS"]["prepare_threshold"] = 0  # of `portal/prepared.py`: other cursors prepare nothing
PGTRIGGER_MIGRATIONS = False  # `migrate` installs what models declare, once the tables are there
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = ENV.redis_url or instance.broker_url(ENV.home)
CACHES = {
    "default": {
        "BACKEND": "portal.core.redis_cache.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "clustertab",
    }
}

# Celery. The broker is a wake-up call: the outbox holds what must happen, so tasks keep no results
# and one that dies is sent again from its row.
CELERY_BROKER_URL = environment.broker(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = (
    None  # else workers end where Redis is away for three quarters of an hour
)
# Without them whoever sends a task to a Redis that went without a word waits for ever. A worker waits 1 second at
# a time for tasks, so longer than that.
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 2, "socket_timeout": 5}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = queues.WAKE
CELERY_TASK_QUEUES: dict[str, dict[str, str]] = {name: {} for name in queues.KINDS}
CELERY_TASK_ROUTES = queues.routes()
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
HEARTBEAT_FILE = ENV.heartbeat_file
CLUSTERTAB_METRICS_TOKEN = ENV.metrics_token
TRACING = ENV.tracing
if TRACING:
    MIDDLEWARE.insert(0, "portal.ops.tracing.RequestSpan")
SENTRY_DSN = ENV.sentry_dsn
CLUSTERTAB_METRICS_SERIES = ENV.metrics_series
CLUSTERTAB_LEDGER_ACCOUNTS = ENV.ledger_accounts
STRIPE_SECRET_KEY = ENV.stripe_key
STRIPE_API_BASE = ENV.stripe_base
STRIPE_WEBHOOK_SECRETS = ENV.stripe_webhook_secrets
STRIPE_ACCOUNT_LABEL = ENV.stripe_account_label

CLUSTERTAB_API = ENV.api
WEBHOOK_NETWORKS = ENV.webhook_networks
WEBHOOK_ALLOW_HTTP = ENV.webhook_allow_http
WEBHOOK_CA_FILE = ENV.webhook_ca_file
REST_FRAMEWORK = {"UNAUTHENTICATED_USER": None}
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "EventTypeEnum": "portal.core.events.models.EventType",
        "WebhookStateEnum": "portal.core.webhooks.models.WebhookState",
        "DeliveryStateEnum": "portal.core.webhooks.models.DeliveryState",
        "MemberRoleEnum": "portal.core.tenants.models.Role",
        "VersionFieldsSettlesEnum": ["invoice", "wallet", "wallet-first"],
        "MemberFieldsRoleEnum": ["owner", "billing", "viewer", "member"],
    },
}

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = [
    "allauth.account.auth_backends.AuthenticationBackend",
    "portal.core.tenants.admin_rights.OperatorRights",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ALLAUTH_TRUSTED_PROXY_COUNT = ENV.trusted_proxies  # whose address the limits on signing in count
ACCOUNT_ADAPTER = "portal.ops.accounts.Accounts"
ACCOUNT_FORMS = {"signup": "portal.ops.accounts.SignUpForm"}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_RATE_LIMITS = {"signup": "10/h/ip"}  # the others are allauth's own
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
# Operators give addresses to accounts. Where mail reaches people, each is proved: by an invitation, or once after the
# first sign-in.
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if ENV.email_url and ENV.portal_url else "none"
ACCOUNT_EMAIL_NOTIFICATIONS = bool(ENV.email_url)  # of a changed password, a new passkey and the like
ACCOUNT_REAUTHENTICATION_TIMEOUT = ENV.reauthentication_minutes * 60 or 300
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if ENV.https else "http"
ACCOUNT_LOGOUT_REDIRECT_URL = "/"
ACCOUNT_SESSION_REMEMBER = True
# Identity providers are rows, which `apply` writes; who signs in by one is decided by `single_sign_on.admit` alone.
SOCIALACCOUNT_ADAPTER = "portal.web.single_sign_on.Providers"
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"  # the provider has seen to it
# What an app shares with us is encrypted with the instance's keys; a passkey's public key is no secret.
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"] if CLUSTERTAB_SECRET_KEYS else ["webauthn"]
MFA_ADAPTER = "portal.ops.accounts.SecondFactor"
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not ENV.https  # browsers allow it on localhost alone
MFA_ALLOW_UNVERIFIED_EMAIL = ACCOUNT_EMAIL_VERIFICATION == "none"
USERSESSIONS_TRACK_ACTIVITY = True  # by SessionLimits, once a minute
CLUSTERTAB_RETENTION_YEARS = ENV.retention_years
CLUSTERTAB_SEALED_MONTHS = ENV.sealed_months
CLUSTERTAB_SEALED_MONTHS_BUCKET = ENV.sealed_months_bucket
CLUSTERTAB_SEALED_MONTHS_ENDPOINT = ENV.sealed_months_endpoint
CLUSTERTAB_SEAL_AFTER_MONTHS = ENV.seal_after_months
CLUSTERTAB_SEAL_AT_NIGHT = ENV.seal_at_night
CLUSTERTAB_REAUTHENTICATION_MINUTES = ENV.reauthentication_minutes
CLUSTERTAB_OPERATOR_SECOND_FACTOR = ENV.operator_second_factor
CLUSTERTAB_SESSION_HOURS = ENV.session_hours
CLUSTERTAB_SESSION_IDLE_MINUTES = ENV.session_idle_minutes

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = True
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [ROOT / "locale"]
FORMAT_MODULE_PATH = "portal.formats"  # the administration writes days as the pages do

STATIC_URL = "/static/"
STATIC_ROOT = ENV.static_root
STATICFILES_DIRS = [ROOT / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "portal.ops.static.Files"},
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
MEDIA_ROOT = ENV.home / "media"

PORTAL_URL = ENV.portal_url
CLUSTERTAB_SENDS_MAIL = bool(ENV.email_url)  # notices to tenants; without, they are kept and can be read
MAIL = environment.email(ENV.email_url or "console:")
EMAIL_BACKEND = MAIL["EMAIL_BACKEND"]
EMAIL_FILE_PATH = MAIL.get("EMAIL_FILE_PATH")
EMAIL_HOST = MAIL.get("EMAIL_HOST", "localhost")
EMAIL_PORT = MAIL.get("EMAIL_PORT", 25)
EMAIL_HOST_USER = MAIL.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = MAIL.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_SSL = MAIL.get("EMAIL_USE_SSL", False)
EMAIL_USE_TLS = MAIL.get("EMAIL_USE_TLS", False)
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = ENV.email_from

# Pages load nothing but our own files; portal.ops.headers sends this with every answer.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    f"connect-src 'self'; form-action 'self'{environment.pay_pages(ENV)}; frame-ancestors 'none'; base-uri 'none'"
)
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5_000  # a plan's form has some 20 for each price
SECURE_REFERRER_POLICY = "same-origin"
SECURE_SSL_REDIRECT = False  # the proxy in front of us does that
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.https else None
SECURE_HSTS_SECONDS = 31_536_000 if ENV.https else 0
SESSION_COOKIE_AGE = max(ENV.session_hours, 1) * 3600
SESSION_COOKIE_NAME = f"sessionid{ENV.cookie_suffix}"
FILE_UPLOAD_HANDLERS = [
    "portal.web.file_uploads.OperatorsAlone",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]
CSRF_COOKIE_NAME = f"csrftoken{ENV.cookie_suffix}"
SESSION_COOKIE_SECURE = ENV.https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = ENV.https
CSRF_COOKIE_HTTPONLY = True

LOGGING_CONFIG = None
logs.configure(level=ENV.log_level)
