"""Whoever runs ClusterTab can read what each setting does."""

from __future__ import annotations

import ast
import re

import pytest

from portal import env
from portal.env import ROOT
from portal.env_variables import SettingError
from tests.architecture.sources import nodes

DOCUMENTED = set(
    re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "reference/settings.md").read_text(), re.MULTILINE)
)
READERS = ("portal/env.py", "deploy/gunicorn.conf.py")


def names_read() -> set[str]:
    names = set()
    for reader in READERS:
        for node in nodes(ROOT / reader):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                value = node.args[0].value
                if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z_]+", value):
                    names.add(value)
    return names


def test_every_setting_that_is_read_is_documented() -> None:
    assert {"DATABASE_URL", "PORT"} <= names_read()
    assert names_read() - DOCUMENTED == set()


def test_every_documented_setting_is_read() -> None:
    assert DOCUMENTED - names_read() - {"CLUSTERTAB_LONG"} == set()


def test_a_value_that_cannot_be_meant_is_refused_in_a_sentence() -> None:
    with pytest.raises(SettingError, match="HTTPS is 'perhaps'; say yes or no"):
        env.read({"HTTPS": "perhaps"})
    with pytest.raises(SettingError, match="DATABASE_POOL is 'many'; a whole number"):
        env.read({"DATABASE_POOL": "many"})
    with pytest.raises(SettingError, match="DATABASE_URL must look like"):
        env.database("mysql://db/clustertab", pool=0)
    with pytest.raises(SettingError, match="DATABASE_REPLICA_URL must look like"):
        env.replica("mysql://db/clustertab", pool=0)
    with pytest.raises(SettingError, match="DATABASE_REPLICA_MAX_LAG is '1'; at least 3 seconds"):
        env.read({"DATABASE_REPLICA_MAX_LAG": "1"})
    with pytest.raises(SettingError, match="SEALED_MONTHS_BUCKET is 'months'; write it like s3://"):
        env.read({"SEALED_MONTHS_BUCKET": "months", "SEALED_MONTHS_DIRECTORY": "months"})
    with pytest.raises(SettingError, match="SEALED_MONTHS_BUCKET needs SEALED_MONTHS_DIRECTORY"):
        env.read({"SEALED_MONTHS_BUCKET": "s3://tab/months"})
    with pytest.raises(SettingError, match="EMAIL_URL must be"):
        env.email("pigeon://loft")


def test_database_addresses_are_taken_apart() -> None:
    far = env.database("postgresql://tab:p%40ss@db.example.org:6432/billing?sslmode=require", pool=8)
    assert (far["USER"], far["PASSWORD"], far["HOST"], far["PORT"]) == (
        "tab",
        "p@ss",
        "db.example.org",
        "6432",
    )
    assert far["NAME"] == "billing"
    assert far["OPTIONS"] == {"sslmode": "require", "pool": {"min_size": 1, "max_size": 8, "timeout": 10}}
    assert far["CONN_MAX_AGE"] == 0

    copy = env.replica("postgresql://tab@db2.example.org/billing?connect_timeout=9", pool=8)
    assert copy["OPTIONS"] == {
        "connect_timeout": "9",
        "tcp_user_timeout": "5000",
        "pool": {"min_size": 1, "max_size": 8, "timeout": 2},
    }

    near = env.database("postgresql://tab:secret@/billing?host=%2Frun%2Fpg", pool=0)
    assert (near["HOST"], near["PORT"], near["OPTIONS"], near["CONN_MAX_AGE"]) == ("/run/pg", "", {}, 60)


def test_the_brokers_address_is_the_same_redis() -> None:
    assert env.broker("redis://redis:6379/0") == "redis://redis:6379/0"
    assert env.broker("unix:///run/redis.sock?db=0") == "redis+socket:///run/redis.sock?virtual_host=0"


def test_mail_addresses_are_taken_apart() -> None:
    mail = env.email("smtp+tls://tab:secret@mail.example.org")
    assert (mail["EMAIL_HOST"], mail["EMAIL_PORT"], mail["EMAIL_USE_TLS"]) == ("mail.example.org", 587, True)
