"""The form of a Kubernetes cluster's API server: Op enters it, secrets are never shown nor sent elsewhere."""

from __future__ import annotations

import pytest

from clusters.models import ApiServer, ClusterKind
from portal.core.audit.models import AuditEntry
from tests.builders import a_cluster
from tests.web.house import a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
PATH = "/operator/clusters/kube/api-server/"
FORM = {
    "base_url": "https://kube.example.org:6443",
    "new_token": "a-secret-token",
    "queues": "research\n shared \nresearch",
    "always_resource_quota": "on",
    "enabled": "on",
}


def test_op_enters_the_api_server_and_what_is_secret_stays_so() -> None:
    house = a_house(close=False)
    a_cluster("kube", kind=ClusterKind.PROMETHEUS)
    op = signed_in(house.op)
    assert f'href="{PATH}"' in page(house.op, "/operator/clusters/kube/")
    assert f'href="{PATH}"' in page(house.op, "/operator/clusters/kube/blocks/")

    def saved(**change: str) -> str:
        return words(op.post(PATH, FORM | change, follow=True).content.decode())

    assert "Write where the API server listens." in saved(base_url="")
    assert "write scheme, host and port" in saved(base_url="kube.example.org")
    assert "holds a private key" in saved(ca="-----BEGIN PRIVATE KEY-----")
    assert "A file is named in a configuration file" in saved(new_token="file:/etc/passwd")
    assert not ApiServer.objects.exists()
    assert "API server saved." in saved()
    row = ApiServer.objects.get()
    assert (row.dedicated_cluster_queues, row.always_resource_quota) == (["research", "shared"], True)
    assert row.token.reveal() == "a-secret-token"
    assert "a-secret-token" not in page(house.op, PATH) + str(AuditEntry.objects.values_list("after"))

    assert "entered for another address" in saved(base_url="https://evil.example.org", new_token="")
    assert "API server saved." in saved(new_token="", queues="")
    row.refresh_from_db()
    assert (row.token.reveal(), row.dedicated_cluster_queues) == ("a-secret-token", [])
    other = op.get("/operator/clusters/gpu1/api-server/", follow=True).content.decode()
    assert "Only a Kubernetes cluster has an API server." in words(other)
    assert signed_in(house.ann).get(PATH).status_code == 404
