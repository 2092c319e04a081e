"""What gunicorn serves. Processes are forked once this is loaded: nothing here opens a connection, or a thread."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import resolve

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# Web processes answer many requests from few threads; workers and commands take no pool, since
# a pool must not be carried over a fork.
os.environ["DATABASE_POOL"] = os.environ.get("DATABASE_POOL") or "8"  # empty counts as absent

UNASKED = ("click", "inflection", "requests", "uritemplate", "yaml")
"""What libraries load wherever it is installed, for command lines and a generator that no page has: 7 MiB."""


@contextmanager
def absent(names: tuple[str, ...]) -> Iterator[None]:
    """Importing them fails in this block, as if they were not installed; after it they can be had.

    One that is loaded already stays: what has it, as `runserver` has, would not get the same one a second time.
    """
    barred = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(barred))  # type: ignore[arg-type]  # None is Python's way to say so
    try:
        yield
    finally:
        for name in barred:
            del sys.modules[name]


# What sends traces and reports of errors looks for some of them.
with absent(() if settings.TRACING or settings.SENTRY_DSN else UNASKED):
    application = get_wsgi_application()

    import redis  # noqa: F401  # 7 MiB that each request of the API needs, and /readyz

    from portal.ops import schema

    schema.digest()  # with which each process compares the database's: computed in each, it takes 3 MiB of each
    resolve("/healthz")  # loads all that pages need before the first request
gc.collect()
gc.freeze()  # what is loaded stays: collections need not look at it again
gc.set_threshold(20_000, 20, 20)
