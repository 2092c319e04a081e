"""Requests that the schema of the API allows, and that it forbids: each is answered as the schema says. Case 61."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import schemathesis
from django.core.cache import cache
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from portal.api import openapi
from tests import sharing
from tests.api.door import door
from tests.api.test_walk import named
from tests.tiers import LONG
from tests.web.house import House, a_house

pytestmark = pytest.mark.django_db

EXAMPLES = 2_000 if LONG else 16  # requests of an operation, allowed and forbidden ones
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
NOT_SENT = ("Content-Length", "Accept-Encoding")
OPERATIONS = [
    (method, path)
    for path, methods in openapi.document()["paths"].items()
    for method in methods
    if method in {"get", "post", "put", "patch", "delete"}
]


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(openapi.document())


begun, house = sharing.fixtures(a_house, "house")


@pytest.fixture(autouse=True)
def _nothing_cached() -> None:
    cache.clear()


@pytest.mark.larger
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_api_061_each_request_is_answered_as_the_schema_says(
    house: House, schema: Any, method: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("REQUESTS", "WRITES"):
        monkeypatch.setattr(f"portal.api.limits.{limit}", 10**9)
    operation = schema[path][method.upper()]
    allowed, forbidden = (
        operation.as_strategy(generation_mode=mode)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    )
    names = {
        "name": named(house).get(path.split("/")[3], ""),
        "email": "ben@vision.example",
        "day": "2017-01-01",
    }
    keys = [door(house.op, None).secret, door(house.ann, house.vision).secret]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=allowed | forbidden, key=st.sampled_from(keys), real=st.integers(0, 3))
    def send(case: Any, key: str, real: int) -> None:
        if real and case.path_parameters:  # mostly an object that is there
            case.path_parameters |= {
                name: value for name, value in names.items() if name in case.path_parameters
            }
        case.validate_response(answered(case, key), checks=CHECKS)

    send()


def answered(case: Any, key: str) -> Response:
    """What the API answers; nothing of what it did is kept."""
    sent = requests.Request(**case.as_transport_kwargs(base_url="http://testserver")).prepare()
    headers = {name: str(value) for name, value in sent.headers.items() if name not in NOT_SENT}
    body = sent.body.encode() if isinstance(sent.body, str) else sent.body or b""
    with transaction.atomic():
        answer = Client(raise_request_exception=False).generic(
            str(sent.method),
            sent.path_url,
            body,
            content_type=headers.pop("Content-Type", "application/json"),
            headers=headers | {"Authorization": f"Bearer {key}"},
        )
        raw = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
        transaction.set_rollback(True)
    answers = {name: [value] for name, value in answer.headers.items()}
    return Response(answer.status_code, answers, raw, sent, elapsed=0, verify=False)
