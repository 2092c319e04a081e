"""What gunicorn serves."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# Web processes answer many requests from few threads; workers and commands take no pool, since
# a pool must not be carried over a fork.
os.environ["DATABASE_POOL"] = os.environ.get("DATABASE_POOL") or "8"  # empty counts as absent

application = get_wsgi_application()

from portal.ops.schema import refuse_unmigrated  # noqa: E402 - needs the applications

refuse_unmigrated()
