"""The site's settings with what tests need: their own database, cheap passwords, mail kept in memory."""

import os

from tests import peers

os.environ["DATABASE_OWNER_URL"] = peers.owner_address()
os.environ["DATABASE_URL"] = peers.address()
os.environ.setdefault("SECRET_KEY", "of no consequence in tests")
os.environ.setdefault("CLUSTERTAB_SECRET_KEYS", "b2Ygbm8gY29uc2VxdWVuY2UgaW4gYW55IHRlc3QgISE=")
os.environ.setdefault("LOG_LEVEL", "WARNING")

from portal.settings import *  # noqa: F403 - the environment comes first

# Static files come from their sources here; whitenoise would warn of the folder that nobody collected.
MIDDLEWARE = [name for name in MIDDLEWARE if not name.startswith("whitenoise.")]  # noqa: F405 - the site's, from above
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
CACHES = {"default": {"BACKEND": "tests.fakes.cache.Cache"}}
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
ALLOWED_HOSTS = ["*"]
# Left to runs of the whole product: every sign-in of a test would count against it.
ACCOUNT_RATE_LIMITS = {}
# Pages are opened without a sign-in, and queries of pages are counted: what needs these sets them.
CLUSTERTAB_REAUTHENTICATION_MINUTES = 0
CLUSTERTAB_SESSION_HOURS = CLUSTERTAB_SESSION_IDLE_MINUTES = 0
