"""What gunicorn serves."""

import gc
import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# Web processes answer many requests from few threads; workers and commands take no pool, since
# a pool must not be carried over a fork.
os.environ["DATABASE_POOL"] = os.environ.get("DATABASE_POOL") or "8"  # empty counts as absent

application = get_wsgi_application()

from portal.ops.schema import refuse_unmigrated  # noqa: E402 - needs the applications

refuse_unmigrated()
get_resolver().url_patterns  # noqa: B018 - all that pages need is loaded before the first of them is asked for
gc.collect()
gc.freeze()  # what is loaded stays: collections need not look at it again
gc.set_threshold(20_000, 20, 20)
