"""The agent sends files of other schedulers whole, as they are, to a web process that stores them for a worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.rating import file_imports
from clusters.models import UsageFile, UsageRecord
from tests.api.door import a_key
from tests.builders import an_operator
from tests.contracts.sacct_exports import shared
from tests.contracts.test_accounting_logs import E, S
from tests.integration.agents import Agent, an_imported_cluster, ledger, seconds
from tests.integration.web_process import WebProcess

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.peers]
LOGS = {
    "pbs": "pbs/ncar_casper_pbspro.log",
    "lsf": "lsf/apel_lsf.log",
    "grid-engine": "gridengine/xdmod_sge.log",
}


@pytest.fixture
def web(database_url: str, tmp_path: Path) -> Iterator[WebProcess]:
    with WebProcess(database_url, tmp_path) as process:
        yield process


def an_agent(home: Path, web: WebProcess, form: str, *, cluster: str = "files") -> Agent:
    secret = a_key(an_operator(f"{form}@cluster.example"), None, "imports:write").secret
    section = {"path": home / "in", "format": form, "settle_seconds": 0}
    return Agent(home, web.url, secret, cluster=cluster, files=section)


def worker() -> None:
    """Imports what waits."""
    for row in UsageFile.objects.filter(ended_at=None):
        file_imports.import_file(row.pk, clock=lambda: datetime.now(UTC).replace(microsecond=0))


@pytest.mark.parametrize("form", LOGS)
def test_files_of_other_schedulers_are_billed_as_if_they_were_imported_here(
    form: str, web: WebProcess, tmp_path: Path
) -> None:
    path = shared(f"accounting/{LOGS[form]}")
    cluster, tenant = an_imported_cluster("vision")
    agent = an_agent(tmp_path / "agent", web, form)
    (agent.inbox / "20260302").write_bytes(path.read_bytes())
    assert "ClusterTab takes usage for files" in agent.does("--check")
    assert not UsageFile.objects.exists()
    assert "Sent 20260302: waiting." in agent.does("--once")
    worker()
    pushed, billed = ledger(cluster), seconds(tenant)
    assert pushed
    assert agent.does("--once") == ""
    call_command("import_usage", "files", str(path), "--format", form, verbosity=0)
    assert (ledger(cluster), seconds(tenant)) == (pushed, billed)


def test_a_log_that_grows_is_sent_again_and_bills_nothing_twice(web: WebProcess, tmp_path: Path) -> None:
    cluster, _ = an_imported_cluster("vision")
    agent = an_agent(tmp_path / "agent", web, "pbs")
    file = agent.inbox / "20260302"
    file.write_text(f"{S}\n")
    assert "Sent 20260302: waiting." in agent.does("--once")
    worker()
    file.write_text(f"{S}\n{E}\n{E.replace('7.pbs', '8.pbs')}\n")
    web.kill()
    assert "does not answer" in agent.does("--once", code=1)
    web.start()
    assert "Sent 20260302: waiting." in agent.does("--once")
    worker()
    records = UsageRecord.objects.filter(cluster=cluster)
    assert sorted(records.values_list("job_id", "gpus")) == [("7.pbs", 2), ("8.pbs", 2)]


def test_what_cannot_be_is_said(web: WebProcess, tmp_path: Path) -> None:
    an_imported_cluster("vision")
    agent = an_agent(tmp_path / "agent", web, "pbs", cluster="moon")
    (agent.inbox / "20260302").write_text(f"{E}\n")
    assert "404" in agent.does("--once", code=1)
    wrong = an_agent(tmp_path / "wrong", web, "torque")
    assert "format in [files] is pbs or lsf" in wrong.does("--check", code=1)
    narrow = Agent(
        tmp_path / "narrow", web.url, a_key(an_operator("n@cluster.example"), None, "usage:push").secret,
        cluster="files", files={"path": tmp_path, "format": "pbs"},
    )  # fmt: skip
    assert "lacks the scope imports:write" in narrow.does("--check", code=1)
