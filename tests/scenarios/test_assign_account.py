"""Op says whose an account is, at the shell."""

from __future__ import annotations

import pytest

from portal.core.tenants.models import Ownership
from portal.ops.cli import RefusedError
from tests import builders
from tests.builders import a_job, at, ingest
from tests.scenarios.configuring import gpu_seconds, run, run_json

pytestmark = pytest.mark.django_db


def test_usage_that_nobody_owned_becomes_the_tenants() -> None:
    cluster = builders.a_cluster("philly")
    builders.a_tenant("vision-lab", plan=builders.a_plan())
    ingest(cluster, a_job(account="vision"))
    assert gpu_seconds("vision-lab") == 0
    assert run_json("assign_account", "philly", "vision", "vision-lab") == {
        "account": "philly/vision",
        "tenant": "vision-lab",
        "project": "vision",
        "since": None,
        "until": None,
        "rated_records": 1,
        "new_account": False,
    }
    assert gpu_seconds("vision-lab") == 3600


def test_asked_again_nothing_changes() -> None:
    builders.a_cluster("philly")
    builders.a_tenant("vision-lab")
    first = run(
        "assign_account", "philly", "vision", "vision-lab", "--since", "2026-03-01", "--project", "Thesis"
    )
    assert first == (
        "philly/vision belongs to vision-lab (project Thesis) since 2026-03-01T00:00:00Z, for ever.\n"
        "No usage of philly/vision has been read yet.\n"
    )
    run("assign_account", "philly", "vision", "vision-lab", "--since", "2026-03-01", "--project", "Thesis")
    assert Ownership.objects.count() == 1


def test_a_date_is_midnight_in_the_tenants_zone_and_a_moment_is_itself() -> None:
    builders.a_cluster("philly")
    builders.a_tenant("berlin", timezone="Europe/Berlin")
    run(
        "assign_account",
        "philly",
        "a",
        "berlin",
        "--since",
        "2026-03-01",
        "--until",
        "2026-05-01T12:00:00+02:00",
    )
    ownership = Ownership.objects.get()
    assert (ownership.since, ownership.until) == (at("2026-02-28 23:00"), at("2026-05-01 10:00"))


def test_a_hand_over_splits_a_job_to_the_second() -> None:
    cluster = builders.a_cluster("philly")
    builders.a_tenant("vision-lab", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    builders.a_tenant("robotics")
    ingest(cluster, a_job(account="vision", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    run("assign_account", "philly", "vision", "robotics", "--since", "2026-03-02T10:00:01Z")
    assert (gpu_seconds("vision-lab"), gpu_seconds("robotics")) == (2, 7198)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("mars", "vision", "vision-lab"), 2, "There is no cluster 'mars'; known: philly."),
        (("philly", "vision", "eve"), 2, "There is no tenant 'eve'; known: robotics, vision-lab."),
        (
            ("philly", "vision", "robotics", "--since", "soon"),
            2,
            ("'soon' is not a moment; write a date like 2017-10-03 or a moment like 2017-10-03T12:00:00Z."),
        ),
        (
            ("philly", "vision", "robotics", "--since", "2026-03-02", "--until", "2026-03-01"),
            2,
            "--until has to be later than --since.",
        ),
        (
            ("philly", "vision", "robotics"),
            1,
            (
                "philly/vision belongs to vision-lab from the beginning, for ever; give a later moment since when "
                "to take it over from then on, or end that ownership first."
            ),
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_code(
    arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    cluster = builders.a_cluster("philly")
    builders.a_tenant("vision-lab", accounts=[(cluster, "vision")])
    builders.a_tenant("robotics")
    with pytest.raises(RefusedError) as refusal:
        run("assign_account", *arguments)
    assert (refusal.value.returncode, str(refusal.value)) == (code, sentence)
    assert Ownership.objects.get().tenant.slug == "vision-lab"
