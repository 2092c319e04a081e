"""The smallest Django site that a page of ours may be compared with. Imports nothing of ours.

What `startproject` gives (sessions in the database, sign-in, CSRF, messages), one view for people who are
signed in, one query, and a template that places as many values in as many bytes as our overview does.

usage: python -m bench.floor_app   makes its tables and somebody who is signed in; prints the session's key
"""

from __future__ import annotations

import os
import sys
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

ROW = (
    '<tr class="floor-row"><td class="floor-cell" data-label="Project"><a class="floor-link" title="{{ row.0 }}" '
    'href="/floor/0/">{{ row.0 }}</a></td><td class="floor-cell" data-label="GPU"><span class="text-secondary">'
    '{{ row.1 }}</span></td><td class="floor-cell floor-num" data-label="GPU-hours">{{ row.2 }}</td></tr>\n'
)
BASE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{% block title %}{% endblock %}</title></head>'
    "<body><header>{{ user.username }}<form>{% csrf_token %}</form></header>"
    "<main>{% for message in messages %}{{ message }}{% endfor %}{% block content %}{% endblock %}</main></body></html>"
)
PAGE = (
    '{% extends "base.html" %}{% block title %}Floor{% endblock %}{% block content %}<table>'
    "{% for row in rows %}" + ROW + "{% endfor %}</table>{% endblock %}"
)
ROWS = 1_000  # in the table; a page asks for some of them


def configure() -> None:
    parts = urlsplit(os.environ["FLOOR_DATABASE_URL"])
    options = {"pool": {"min_size": 1, "max_size": 8, "timeout": 10}}
    settings.configure(
        SECRET_KEY="of no consequence here",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.messages",
        ],
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [
                        ("django.template.loaders.locmem.Loader", {"base.html": BASE, "page.html": PAGE})
                    ],
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ],
                },
            }
        ],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.path.strip("/"),
                "USER": parts.username,
                "PASSWORD": parts.password,
                "HOST": parse_qs(parts.query)["host"][0],
                "OPTIONS": options,
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGIN_URL="/login",
        USE_TZ=True,
    )
    django.setup()


configure()


@login_required
def page(request: HttpRequest, rows: int) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT project, model, hours FROM floor_total WHERE tenant = 1 ORDER BY id LIMIT %s", [rows]
        )
        return render(request, "page.html", {"rows": cursor.fetchall()})


urlpatterns = [path("floor/<int:rows>/", page, name="page")]
application = get_wsgi_application()


def prepare() -> str:
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE floor_total (id serial PRIMARY KEY, tenant int, project text, model text, hours numeric);"
            "INSERT INTO floor_total (tenant, project, model, hours)"
            f" SELECT 1, 'project ' || n, 'h100', n + 0.25 FROM generate_series(1, {ROWS}) n"
        )
    client = Client()
    client.force_login(get_user_model().objects.create_user("ann", password="correct horse battery"))
    return client.cookies[settings.SESSION_COOKIE_NAME].value


if __name__ == "__main__":
    sys.stdout.write(prepare())
