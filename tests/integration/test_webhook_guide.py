"""The shell of docs/how-to/webhooks.md signs as ClusterTab does. Case 51 of the API."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from portal.core.webhooks import signing
from portal.env import ROOT
from tests.fakes.receiver import receiving

GUIDE = (ROOT / "docs" / "how-to" / "webhooks.md").read_text()
(SCRIPT,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="needs curl and openssl")
def test_api_051_the_published_package_verifies_what_the_printed_commands_sign() -> None:
    with receiving() as receiver:
        secret = signing.new_secret()
        receiver.secrets["/mine"] = [secret]
        environ = os.environ | {"SECRET": secret, "ENDPOINT": receiver.url("/mine"), "no_proxy": "*"}
        subprocess.run(["sh", "-ec", SCRIPT], env=environ, check=True, timeout=60)
        assert [arrival.body["type"] for arrival in receiver.arrivals] == ["webhook.test"]
