"""A strict stand-in for what gives AWS keys to workloads: AWS STS, and the agent of EKS Pod Identity.

As their documentation has it: API reference of STS, AssumeRoleWithWebIdentity; *Container credential provider* of the
AWS SDKs. What they do not know they refuse, as they do.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs

ROLE = "arn:aws:iam::123456789012:role/clustertab"
TOKEN = "signed-by-kubernetes"
FIELDS = {"Action", "Version", "RoleArn", "RoleSessionName", "WebIdentityToken"}
SUCCESS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <SubjectFromWebIdentityToken>system:serviceaccount:billing:clustertab</SubjectFromWebIdentityToken>
    <AssumedRoleUser><Arn>{role}</Arn><AssumedRoleId>AROA:clustertab</AssumedRoleId></AssumedRoleUser>
    <Credentials>
      <SessionToken>{session}</SessionToken><SecretAccessKey>{secret}</SecretAccessKey>
      <Expiration>{end}</Expiration><AccessKeyId>{access}</AccessKeyId>
    </Credentials>
  </AssumeRoleWithWebIdentityResult>
  <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</AssumeRoleWithWebIdentityResponse>"""
FAILURE = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId>
</ErrorResponse>"""


class StandIn:
    """`with StandIn(ends=…) as aws` serves `aws.url`; keys are numbered in the order in which they were given."""

    def __init__(self, *, ends: int) -> None:
        self.ends, self.count = ends, 0
        self.broken = False

    def __enter__(self) -> Self:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.answer(*stand_in.sts(parse_qs(body, strict_parsing=True)), kind="text/xml")

            def do_GET(self) -> None:
                self.answer(
                    *stand_in.agent(self.path, self.headers["Authorization"]), kind="application/json"
                )

            def answer(self, status: int, text: str, *, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def _end(self) -> str:
        return f"{datetime.fromtimestamp(self.ends, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def sts(self, form: dict[str, list[str]]) -> tuple[int, str]:
        if self.broken:
            return 503, "busy"
        if (
            set(form) != FIELDS
            or form["Action"] != ["AssumeRoleWithWebIdentity"]
            or form["Version"] != ["2011-06-15"]
        ):
            return 400, FAILURE.format(code="InvalidAction", message="Could not find operation")
        if form["WebIdentityToken"] != [TOKEN]:
            return 400, FAILURE.format(code="InvalidIdentityToken", message="The token is expired")
        if form["RoleArn"] != [ROLE]:
            return 403, FAILURE.format(code="AccessDenied", message="Not authorized to perform it")
        self.count += 1
        keys = {
            "access": f"ASIA{self.count}",
            "secret": f"secret{self.count}",
            "session": f"session{self.count}",
        }
        return 200, SUCCESS.format(role=ROLE, end=self._end, **keys)

    def agent(self, path: str, authorization: str | None) -> tuple[int, str]:
        if path != "/v1/credentials":
            return 404, ""
        if authorization != TOKEN:
            return 401, json.dumps({"message": "The token is invalid"})
        self.count += 1
        keys = {"AccessKeyId": f"ASIA{self.count}", "SecretAccessKey": f"secret{self.count}"}
        return 200, json.dumps(keys | {"Token": f"session{self.count}", "Expiration": self._end})
