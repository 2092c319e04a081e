"""A real Prometheus scrapes what a server of models tells, and its tokens are read from there, each once.

The server is a page in the text format with vLLM's names; and LiteLLM's own proxy with a mocked model, where
CLUSTERTAB_LITELLM names its program: it needs packages that this project does without, so an environment of its own.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from clusters.connectors.base import UsageFact
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin
from clusters.connectors.prometheus.option_parsing import options_from
from tests.contracts.test_prometheus_tokens import METERS
from tests.fakes.prometheus import FORM, Reply, StandIn
from tests.fakes.prometheus import Request as Question
from tests.integration.prom_lab import Lab, bare

HOUR = 3600
TEN = 1_772_445_600  # 2026-03-02 10:00 UTC
QUICK = 120  # times as fast
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: models
  metrics_path: /metrics/
  static_configs: [{{targets: ["{target}"], labels: {{namespace: vision}}}}]
"""


class Page:
    """vLLM's counters as they stand."""

    def __init__(self) -> None:
        page = self
        self.counted = {"prompt": 0, "generation": 0}
        self.began = time.time()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page.text().encode()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def text(self) -> str:
        lines = [f"process_start_time_seconds {self.began}"]
        for what, number in self.counted.items():
            lines += [
                f"# TYPE vllm:{what}_tokens_total counter",
                f'vllm:{what}_tokens_total{{engine="0",model_name="meta/large"}} {float(number)}',
            ]
        return "\n".join(lines) + "\n"


class Quick:
    """A real server as if an hour went by in half a minute, from `began` on, which is ten o'clock."""

    def __init__(self, url: str, began: float) -> None:
        self.url = url
        self.began = began

    @property
    def now(self) -> int:
        return int(self.faster(time.time()))

    def faster(self, at: float) -> float:
        return TEN + (at - self.began) * QUICK

    def meant(self, at: str) -> str:
        return f"{self.began + (float(at) - TEN) / QUICK:.3f}"

    def answer(self, question: Question) -> Reply:
        form = {name: values[0] for name, values in question.form.items()}
        form |= {name: self.meant(form[name]) for name in ("time", "start", "end") if name in form}
        if "step" in form:
            form["step"] = f"{float(form['step']) / QUICK:.3f}"
        form["query"] = re.sub(r"\[(\d+)ms\]", lambda span: f"[{-(-int(span[1]) // QUICK)}ms]", form["query"])
        request = Request(
            f"{self.url}/api/v1/{question.what}", urlencode(form).encode(), {"content-type": FORM}
        )
        with urlopen(request) as response:
            answer = json.load(response)
        for one in answer["data"]["result"]:
            is_moment = one["metric"].get("__name__") == "process_start_time_seconds"
            for sample in [*one.get("values", ()), *([one["value"]] if "value" in one else ())]:
                sample[0] = round(self.faster(sample[0]), 3)
                sample[1] = str(self.faster(float(sample[1]))) if is_moment else sample[1]
        return Reply(body=json.dumps(answer).encode())


def _read(url: str, began: float, server: str) -> dict[str, int]:
    """Tokens by account, key and dimensions of the hour that began then, when it has settled."""
    quick = Quick(url, began)
    while quick.now < TEN + HOUR + 900:
        time.sleep(0.5)
    begin, now = TEN, quick.now
    with StandIn(quick.answer, now=now) as source:
        connector = PrometheusConnector(
            Endpoint(base_url=source.url),
            login=PrometheusLogin(),
            options=options_from({"pods": False, "tokens": {"server": server, "since": "2020-01-01T00:00Z"}}),
            clock=lambda: now,
            meters=METERS,
        )
        tokens: dict[str, int] = {}
        for row in connector.usage(since=begin, until=now, open_keys=()):
            assert isinstance(row, UsageFact)
            assert row.quantity is not None
            key = f"{row.account}/{row.user[:8]}/{row.gpu_model}"
            tokens[key] = tokens.get(key, 0) + row.quantity
    return tokens


def _waits_for(url: str, query: str, value: str) -> None:
    """Until the server has scraped that."""
    for _ in range(200):
        with urlopen(f"{url}/api/v1/query?query={query}") as response:
            result = json.load(response)["data"]["result"]
        if result and result[0]["value"][1] == value:
            return
        time.sleep(0.2)
    raise AssertionError(f"{query} never came to {value}.")


def test_a_scraped_page_is_read_to_the_token(prom_lab: Lab) -> None:
    page, began = Page(), time.time()
    with bare(prom_lab, config=CONFIG.format(target=page.target)) as url:
        _waits_for(url, "vllm:prompt_tokens_total", "0")
        page.counted = {"prompt": 900, "generation": 40}
        _waits_for(url, "vllm:prompt_tokens_total", "900")
        page.counted, page.began = {"prompt": 34, "generation": 2}, time.time()  # the server is started anew
        _waits_for(url, "vllm:prompt_tokens_total", "34")
        tokens = _read(url, began, "vllm")
    page.server.shutdown()
    assert tokens == {
        "vision//direction=input, model=meta/large": 934,
        "vision//direction=output, model=meta/large": 42,
    }


@contextmanager
def _litellm(program: str, directory: Path) -> Iterator[str]:
    """The address of the proxy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = {"model": "openai/small", "api_key": "none", "mock_response": "a b c d e f g"}
    config = {
        "model_list": [{"model_name": "small", "litellm_params": model}],
        "litellm_settings": {"callbacks": ["prometheus"]},
        "general_settings": {"master_key": "sk-test-1"},
    }
    (directory / "config.yaml").write_text(json.dumps(config))
    process = subprocess.Popen(
        [program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"],
        cwd=directory, env={"PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(300):
            try:
                urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=2).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _ask(address: str) -> dict[str, Any]:
    body = {"model": "small", "messages": [{"role": "user", "content": "how many tokens are these"}]}
    headers = {"authorization": "Bearer sk-test-1", "content-type": "application/json"}
    request = Request(f"http://{address}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=30) as response:
        usage: dict[str, Any] = json.load(response)["usage"]
        return usage


@pytest.mark.skipif(
    "CLUSTERTAB_LITELLM" not in os.environ, reason="CLUSTERTAB_LITELLM names no program of LiteLLM's proxy."
)
def test_the_proxy_of_litellm_is_read_to_the_token(prom_lab: Lab, tmp_path: Path) -> None:
    with (
        _litellm(os.environ["CLUSTERTAB_LITELLM"], tmp_path) as address,
        bare(prom_lab, config=CONFIG.format(target=address)) as url,
    ):
        _waits_for(url, "up", "1")
        began = time.time() - 5
        answers = [_ask(address) for _ in range(3)]
        read, written = (sum(one[name] for one in answers) for name in ("prompt_tokens", "completion_tokens"))
        _waits_for(url, "litellm_input_tokens_metric_total", str(read))
        _waits_for(url, "litellm_output_tokens_metric_total", str(written))
        tokens = _read(url, began, "litellm")
    assert read > 0
    assert tokens == {
        "/db567a0d/direction=input, model=small": read,  # the master key is of no team
        "/db567a0d/direction=output, model=small": written,
    }
