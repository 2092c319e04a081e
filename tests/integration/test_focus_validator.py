"""The official validator of FOCUS reads what we export, in a Python of its own: it wants 3.12 or newer.

Where there is no such Python, or it cannot be installed, the test fails: a skip would read as a pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from billing.catalog import version_terms
from billing.invoicing import credit_notes, manual_lines
from billing.reports import focus, focus_files
from billing.rules.money import Money
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import close, invoice_of
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db

VALIDATOR = ("focus-validator==2.2.1", "pyarrow<20")
FALSE_ALARMS = {
    # Asks for null whatever the row: whether a charge is on an invoice is not in the data.
    "InvoiceId-C-004-C": "FOCUS_Spec#2394",
    # The same of charges that no invoice has yet, and the two rules that are made of both.
    "InvoiceId-C-005-C": "FOCUS_Spec#2394",
    "InvoiceId-C-003-C": "FOCUS_Spec#2394",
    "InvoiceId-C-000-O": "FOCUS_Spec#2394",
    # Of every purchase, also of a fee for its own period; the prose has it of what covers future charges alone.
    "EffectiveCost-C-005-C": "FOCUS_Spec#2673",
}
"""Rules that conformant data breaks, by the public issue that says so."""


def a_python() -> str:
    """One that the validator runs on: of the PATH, whose shims may point nowhere, or beside the one that runs this."""
    named = [shutil.which(f"python3.{minor}") for minor in (12, 13, 14)]
    for found in (*named, *sorted(Path(sys.base_prefix).parent.glob("3.1[2-4].*/bin/python"))):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(found)
    pytest.fail("The validator of FOCUS did not run: there is no Python 3.12 or newer on this machine.")


@pytest.fixture(scope="session")
def validator() -> Path:
    """Its folder of packages, where it has to be started; installed once a machine."""
    home = Path(tempfile.gettempdir()) / f"clustertab-{VALIDATOR[0].replace('==', '-')}-{os.getuid()}"
    program = home / "bin" / "focus-validator"
    if not program.exists():
        shutil.rmtree(home, ignore_errors=True)
        steps: list[list[str | Path]] = [
            [a_python(), "-m", "venv", home],
            [home / "bin" / "pip", "install", "-q", *VALIDATOR],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=600)
            if done.returncode != 0:
                shutil.rmtree(home, ignore_errors=True)
                pytest.fail(
                    f"The validator of FOCUS did not run: it cannot be installed. {done.stderr[-2000:]}"
                )
    return next(home.glob("lib/python3.*/site-packages"))


def findings(packages: Path, file: Path) -> tuple[set[str], set[str]]:
    """The rules that passed and that failed."""
    command: list[str | Path] = [packages.parents[2] / "bin" / "focus-validator", "--data-file", file]
    command += ["--validate-version", "1.2", "--block-download"]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False, timeout=300)
    told = re.findall(r"^\W+ (\S+): (PASS|FAIL)\b", done.stdout, re.MULTILINE)
    assert told, done.stdout[-1000:] + done.stderr[-3000:]
    return tuple({rule for rule, verdict in told if verdict == wanted} for wanted in ("PASS", "FAIL"))  # type: ignore[return-value]


def a_year_of_everything() -> list[Tenant]:
    """Use, tiers and allowances, a fee, lines by hand, tax, corrections, credit notes and an open month."""
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(
        "vision-lab",
        plan=a_plan("standard"),
        accounts=[(cluster, "vision")],
        corrections=Corrections.CREDIT_NOTE,
        tax_rate=Decimal(19),
    )
    version = a_version(TWO_DOLLARS, allowance="1", name="deal")
    version_terms.set_fee(version=version, name="Support", amount=Decimal("30.00"))
    speech = a_tenant("7", plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "speech")])
    for amount in ("10.00", "-2.50"):
        manual_lines.add_manual_line(
            tenant=speech,
            description="Setup",
            net=Money.of(amount, "USD"),
            reason="-",
            by="op",
            on=date(2026, 4, 2),
        )
    long = {"source_key": "1", "queue": "long", "started": "2026-03-02 10:00"}
    ingest(
        cluster,
        a_job(ended="2026-03-02 10:20", **long),
        a_job(user="123", started="2026-03-05 10:00", ended="2026-03-07 10:00"),
        a_job(account="speech", gpus=3),
        a_job(account="speech", user="=cmd|x", started="2026-03-05 10:00", ended="2026-03-07 10:00"),
    )
    close("2026-03")
    ingest(
        cluster,
        a_job(ended="2026-03-02 10:05", **long),
        a_job(started="2026-04-05 10:00", ended="2026-04-07 10:00"),
        a_job(account="speech", started="2026-05-05 10:00", ended="2026-05-07 10:00"),
    )
    close("2026-04")
    credit_notes.issue_credit_note(
        invoice=invoice_of(lab, "2026-03"),
        reason="Queue down",
        by="op",
        on=date(2026, 4, 20),
        net=Money.of("1.00", "USD"),
    )
    return list(Tenant.objects.order_by("slug"))


def exported(tenants: list[Tenant], file: Path) -> Path:
    """Three months in one file."""
    content = b""
    for month in (3, 4, 5):
        dataset = focus.make_dataset(tenants=tenants, month=(2026, month), moment=at("2026-06-02"))
        rows = b"".join(focus_files.as_csv(dataset.charges))
        content += rows if not content else rows.partition(b"\r\n")[2]
    file.write_bytes(content)
    return file


def test_api_059_the_official_validator_finds_nothing_but_its_known_false_alarms(
    validator: Path, tmp_path: Path
) -> None:
    file = exported(a_year_of_everything(), tmp_path / "focus.csv")

    passed, failed = findings(validator, file)

    assert failed == FALSE_ALARMS.keys()
    assert len(passed) > 120


def test_api_059_the_validator_sees_what_is_wrong(validator: Path, tmp_path: Path) -> None:
    file = exported(a_year_of_everything(), tmp_path / "focus.csv")
    file.write_bytes(file.read_bytes().replace(b",USD,", b",dollars,").replace(b"Northern Compute GmbH", b""))

    _, failed = findings(validator, file)

    assert {"BillingCurrency-C-003-M", "ProviderName-C-003-M"} <= failed
