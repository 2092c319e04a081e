"""Keys: what they look like, whose rights they have, how they end. Cases 16 to 24 of the API."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext

from portal.api import keys
from portal.api.authentication import client_of
from portal.api.keys import KeyRefusedError
from portal.api.models import ApiKey
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Membership, Role, Tenant
from portal.ops.logs import discreet
from tests.api.door import Door, a_key, door
from tests.builders import a_person
from tests.web.house import House

pytestmark = pytest.mark.django_db


def test_api_016_a_key_is_shown_once_and_only_its_digest_is_stored(house: House) -> None:
    new = a_key(house.ann, house.vision)
    assert re.fullmatch(r"ct_live_[0-9A-Za-z]{57}", new.secret)
    assert new.secret[8:16] == new.key.prefix
    row = ApiKey.objects.values().get()
    assert new.secret not in str(row)
    assert new.secret[16:59] not in str(
        {name: bytes(v) if isinstance(v, memoryview) else v for name, v in row.items()}
    )


def test_api_016_a_mistyped_key_is_told_from_a_wrong_one_without_a_query(house: House) -> None:
    secret = a_key(house.ann, house.vision).secret
    mistyped = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    with CaptureQueriesContext(connection) as queries:
        assert keys.find(mistyped, moment=datetime.now(UTC)) is None
    assert len(queries) == 0
    assert "mistyped" in Door(mistyped).get("/me").body["detail"]
    unknown_key = keys.secrets_of("AAAAAAAA")
    assert "was revoked, has expired" in Door(unknown_key).get("/me").body["detail"]


def test_api_017_a_key_has_its_makers_rights_as_they_are_now(house: House) -> None:
    ann, carla = door(house.ann, house.vision), door(house.carla, house.vision)
    assert carla.get("/invoices").status == 200
    Membership.objects.filter(user=house.carla).update(role=Role.MEMBER)
    assert carla.get("/invoices").problem == (403, "missing-scope")
    assert carla.get("/status").status == 200
    Membership.objects.filter(user=house.carla).delete()
    assert carla.get("/status").problem == (401, "unauthenticated")
    assert ann.get("/invoices").status == 200


def test_api_017_a_service_key_outlives_its_maker_and_only_owners_make_one(house: House) -> None:
    with pytest.raises(KeyRefusedError, match="Only owners make service keys"):
        a_key(house.carla, house.vision, "invoices:read", is_service=True)
    service = door(house.ann, house.vision, "invoices:read", is_service=True)
    Membership.objects.filter(user=house.ann).delete()
    assert service.get("/invoices").status == 200


def test_api_018_a_key_cannot_have_a_scope_that_its_maker_could_not_use(house: House) -> None:
    with pytest.raises(
        KeyRefusedError, match=r"The role of ben@vision\.example does not allow invoices:read"
    ):
        a_key(house.ben, house.vision, "invoices:read")
    with pytest.raises(KeyRefusedError, match="There is no scope ops:read"):
        a_key(house.ann, house.vision, "ops:read")
    with pytest.raises(KeyRefusedError, match="Only operators make keys without a tenant"):
        a_key(house.ann, None, "ops:read")


def test_api_018_where_members_see_their_own_alone_the_setting_is_named_as_the_reason(house: House) -> None:
    Tenant.objects.filter(pk=house.vision.pk).update(members_see_own=True)
    vision = Tenant.objects.get(pk=house.vision.pk)
    with pytest.raises(KeyRefusedError, match="Members of Vision Lab see their own usage alone") as refusal:
        a_key(house.ben, vision, "quotas:read")
    assert "role" not in str(refusal.value)
    with pytest.raises(
        KeyRefusedError, match=r"The role of ben@vision\.example does not allow invoices:read"
    ):
        a_key(house.ben, vision, "invoices:read")
    assert a_key(house.ben, vision, "jobs:read").secret


def test_api_018_what_the_scope_does_not_reach_is_refused_by_name(house: House) -> None:
    usage = door(house.ann, house.vision, "usage:read")
    refused = usage.get("/invoices")
    assert refused.problem == (403, "missing-scope")
    assert refused.body["detail"] == "It needs the scope invoices:read."


@pytest.mark.parametrize("name", ["evil\nBcc: x@y.example", "evil\x1b[2J", "evil\u2028mail"])
def test_api_023_the_name_of_a_key_is_one_line_wherever_it_is_written(house: House, name: str) -> None:
    key, moment = a_key(house.ann, house.vision).key, datetime.now(UTC)
    with pytest.raises(KeyRefusedError, match="in one line"):
        keys.make(maker=house.ann, tenant=house.vision, name=name, scopes=["jobs:read"], moment=moment)
    with pytest.raises(KeyRefusedError, match="in one line"):
        keys.change(key=key, name=name, expires_at=None, moment=moment)


def test_api_020_a_rotated_key_has_two_secrets_for_a_while(house: House) -> None:
    old = a_key(house.ann, house.vision)
    moment = datetime.now(UTC)
    new = keys.rotate(key=old.key, by=old.key.maker, overlap=timedelta(hours=2), moment=moment)
    assert new.secret[:16] == old.secret[:16]
    assert [Door(key.secret).get("/me").status for key in (old, new)] == [200, 200]
    row = ApiKey.objects.get()
    assert row.used_at is not None
    assert row.previous_used_at is not None
    assert keys.find(old.secret, moment=moment + timedelta(hours=1, minutes=59)) is not None
    assert keys.find(old.secret, moment=moment + timedelta(hours=2)) is None
    assert keys.find(new.secret, moment=moment + timedelta(hours=2)) is not None
    with pytest.raises(KeyRefusedError, match="0 to 168 hours"):
        keys.rotate(key=old.key, by=old.key.maker, overlap=timedelta(hours=169), moment=moment)


def test_api_020_a_revoked_or_expired_key_is_refused_at_once(house: House) -> None:
    moment = datetime.now(UTC)
    new = a_key(house.ann, house.vision)
    assert Door(new.secret).get("/me").status == 200
    keys.revoke(key=new.key, moment=moment)
    assert Door(new.secret).get("/me").problem == (401, "unauthenticated")
    brief = a_key(house.ann, house.vision, moment=moment, expires_at=moment + timedelta(hours=1))
    assert keys.find(brief.secret, moment=moment + timedelta(minutes=59)) is not None
    assert keys.find(brief.secret, moment=moment + timedelta(hours=1)) is None
    with pytest.raises(KeyRefusedError, match="would have expired already"):
        a_key(house.ann, house.vision, moment=moment, expires_at=moment)


def test_api_021_a_wrong_key_is_answered_the_same_whether_its_prefix_exists(house: House) -> None:
    secret = a_key(house.ann, house.vision).secret
    other_secret = keys.secrets_of(secret[8:16])  # the same prefix
    answers = [Door(text).get("/me") for text in (other_secret, keys.secrets_of("zzzzzzzz"))]
    assert [answer.problem for answer in answers] == [(401, "unauthenticated")] * 2
    assert answers[0].headers["WWW-Authenticate"] == 'Bearer realm="ClusterTab"'
    bodies = [{**answer.body, "instance": ""} for answer in answers]
    assert bodies[0] == bodies[1]


def test_api_021_twenty_wrong_keys_a_minute_are_enough(house: House) -> None:
    tries = [Door(keys.secrets_of("zzzzzzzz")).get("/me").status for _ in range(45)]
    assert tries[:20] == [401] * 20
    assert 429 in tries  # a minute may have ended on the way
    assert door(house.ann, house.vision).get("/me").status == 200  # a good key from the same address


def test_api_021_a_key_in_an_address_counts_as_compromised(house: House, ann: Door) -> None:
    refused = Door("").get(f"/me?key={ann.secret}")
    assert refused.problem == (400, "invalid-request")
    assert "revoke this key, it counts as compromised" in refused.body["detail"]


def test_api_022_a_session_of_the_portal_opens_nothing(house: House) -> None:
    from tests.web.house import signed_in

    response = signed_in(house.ann).get("/api/v1/me")
    assert response.status_code == 401


def test_api_023_keys_are_in_the_history_without_their_secret(house: House) -> None:
    new = a_key(house.ann, house.vision)
    keys.revoke(key=new.key, moment=datetime.now(UTC))
    entries = list(AuditEntry.objects.of_table(ApiKey))
    assert [entry.operation for entry in entries] == ["insert", "update"]
    assert "digest" not in str(entries[0].after)
    assert entries[0].tenant_id == house.vision.pk


def test_api_024_a_key_is_one_indexed_read_and_at_most_one_write_an_hour(house: House, ann: Door) -> None:
    moment = datetime.now(UTC)
    with CaptureQueriesContext(connection) as queries:
        key = keys.find(ann.secret, moment=moment)
    assert key is not None
    assert len(queries) == 1
    assert "password" in key.maker.get_deferred_fields()  # what no request needs is not read
    keys.record_use(key, text=ann.secret, address="127.0.0.1", moment=moment)
    again = keys.find(ann.secret, moment=moment)
    assert again is not None
    with CaptureQueriesContext(connection) as queries:
        keys.record_use(again, text=ann.secret, address="127.0.0.1", moment=moment)
    assert len(queries) == 0


def test_api_024_what_a_key_may_do_is_read_with_it(house: House, ann: Door) -> None:
    request = RequestFactory().get("/api/v1/me", headers={"Authorization": f"Bearer {ann.secret}"})
    client_of(request)  # remembers the hour of its use
    with CaptureQueriesContext(connection) as queries:
        client = client_of(request)
    assert client.scopes
    assert len(queries) == 1


def test_a_key_belongs_to_its_tenant_alone(house: House, ann: Door) -> None:
    eve = door(house.eve, house.speech)
    number = house.invoice.number
    assert ann.get(f"/invoices/{number}").status == 200
    assert eve.get(f"/invoices/{number}").problem == (404, "not-found")
    (own,) = ann.reads("/invoices")["data"]
    assert eve.get(f"/invoices/{own['id']}").problem == (404, "not-found")
    assert [row["tenant"] for row in eve.all("/invoices")] == ["speech-lab"]


def test_who_is_no_member_makes_no_key(house: House) -> None:
    stranger = a_person("zoe@elsewhere.example", house.speech, Role.OWNER)
    with pytest.raises(KeyRefusedError, match=r"The role of zoe@elsewhere\.example does not allow"):
        a_key(stranger, house.vision, "usage:read")


def test_nobody_takes_over_somebody_elses_rights_by_rotating_their_key(house: House) -> None:
    """Who owns the tenant too, and is removed tomorrow, must not keep a key that has Ann's rights."""
    second = a_person("dora@vision.example", house.vision, Role.OWNER)
    hers = a_key(house.ann, house.vision)
    moment = datetime.now(UTC)
    with pytest.raises(KeyRefusedError, match="Only its maker rotates a key"):
        keys.rotate(key=hers.key, by=second, overlap=timedelta(0), moment=moment)
    service = a_key(house.ann, house.vision, is_service=True)
    assert keys.rotate(key=service.key, by=second, overlap=timedelta(0), moment=moment).secret


def test_a_second_press_of_rotate_does_not_end_the_secret_that_is_in_use(house: House) -> None:
    old = a_key(house.ann, house.vision)
    moment = datetime.now(UTC)
    unused, newest = (
        keys.rotate(key=old.key, by=house.ann, overlap=timedelta(hours=24), moment=moment) for _ in range(2)
    )
    valid = [keys.find(each.secret, moment=moment) is not None for each in (old, unused, newest)]
    assert valid == [True, False, True]


def test_there_are_so_many_keys_at_most(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST", 1)
    first = a_key(house.ann, house.vision)
    with pytest.raises(KeyRefusedError, match="There are 1 keys already"):
        a_key(house.ann, house.vision)
    keys.revoke(key=first.key, moment=datetime.now(UTC))
    a_key(house.ann, house.vision)


def test_api_023_no_log_has_a_key_beyond_its_public_part(house: House, ann: Door) -> None:
    line = discreet(None, "", {"event": "request", "path": f"/api/v1/invoices/{ann.secret}"})
    assert line["path"] == f"/api/v1/invoices/{ann.secret[:16]}…"
    assert Door("").get(f"/invoices/{ann.secret}").problem == (400, "invalid-request")
    assert Door("").get("/me?k=" + ann.secret.replace("_", "%5f")).problem == (400, "invalid-request")


def test_behind_a_proxy_of_ours_each_address_has_attempts_of_its_own(house: House) -> None:
    wrong = Door(keys.secrets_of("zzzzzzzz"))
    with override_settings(ALLAUTH_TRUSTED_PROXY_COUNT=1):
        for _ in range(25):
            wrong.get("/me", **{"X-Forwarded-For": "203.0.113.9"})
        answers = {wrong.get("/me", **{"X-Forwarded-For": f"203.0.113.{host}"}).status for host in (10, 11)}
    assert answers == {401}
