"""Kill -9 between the call and its record: the act is settled by looking, and nothing is sent a second time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from clusters.models import AccountBlock, Act
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn
from tests.integration.operators import Operator

pytestmark = pytest.mark.usefixtures("transactional_db")


def killer(victim: list[int], method: str) -> Callable[[str], None]:
    """Kills the process whose request of that kind it sees, once."""

    def strike(request: str) -> None:
        if request.startswith(method) and victim:
            os.kill(victim.pop(), signal.SIGKILL)
            time.sleep(0.2)  # it is dead before it could be answered

    return strike


def begins(op: Operator, victim: list[int], *command: str) -> int:
    """Run the command and learn whom to kill; its exit code."""
    victim.append(op.begins(*command))
    return op.ends()


@pytest.mark.parametrize("when", ["after it took effect", "before it took effect"])
def test_a_block_whose_process_is_killed(database_url: str, when: str) -> None:
    with StandIn(44, world=a_world()) as slurm, Operator(database_url) as op:
        slurm.now = int(time.time())
        connected(slurm)
        victim: list[int] = []
        strike = killer(victim, "POST")
        if when == "after it took effect":
            slurm.after = strike
        else:
            slurm.before, slurm.loses = strike, True
        assert begins(op, victim, "block_account", "gpu1", "vision", "--yes") == -signal.SIGKILL
        assert Act.objects.get().outcome == "intended"
        slurm.before = slurm.after = lambda request: None
        slurm.loses = False

        op.does("block_account", "gpu1", "vision", "--yes")  # settles; and blocks, where it was not
        took = when == "after it took effect"
        outcomes = list(Act.objects.order_by("pk").values_list("outcome", flat=True))
        assert outcomes == (["done"] if took else ["failed", "done"])
        assert AccountBlock.objects.filter(ended_at=None).count() == 1
        assert slurm.world.limits("vision").tres["total"] == {"cpu": 512, "gres/gpu": 0}
        op.does("unblock_account", "gpu1", "vision", "--yes")
        assert slurm.world.limits("vision").tres["total"] == {"cpu": 512, "gres/gpu": 8}


@pytest.mark.sample
def test_a_cancel_whose_process_is_killed(database_url: str) -> None:
    with StandIn(44, world=a_world()) as slurm, Operator(database_url) as op:
        slurm.now = int(time.time())
        slurm.world.add(Job(11), Job(12))
        connected(slurm)
        victim: list[int] = []
        slurm.after = killer(victim, "DELETE")
        assert begins(op, victim, "cancel_job", "gpu1", "11", "--yes") == -signal.SIGKILL
        op.does("cancel_job", "gpu1", "11", "--yes")
        assert Act.objects.get().outcome == "done"
        assert len(slurm.writes()) == 1
        op.does("cancel_job", "gpu1", "12", "--yes")
        assert slurm.world.jobs[12].state == "CANCELLED"
