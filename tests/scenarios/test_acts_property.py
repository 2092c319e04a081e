"""Whatever limits an account has, a block and its lifting give exactly those back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters import enforcement_plan
from clusters.connectors.slurm.associations import JOBS, TRES
from clusters.job_control import carry_out
from clusters.models import AccountBlock, BlockReason
from tests.fakes.scheduler_port import a_port
from tests.fakes.slurm_world import Association, World
from tests.fakes.slurmrestd import StandIn
from tests.tiers import examples

pytestmark = pytest.mark.django_db

RESOURCES = st.sampled_from(["cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100", "license/abaqus"])
PATHS = {name: ".".join(path) for name, path in {**TRES, **JOBS}.items()}
SOME_TRES = st.dictionaries(
    st.sampled_from([PATHS[name] for name in TRES]),
    st.dictionaries(RESOURCES, st.integers(0, 2**63), min_size=1, max_size=4),
    max_size=5,
)
SOME_JOBS = st.dictionaries(
    st.sampled_from([PATHS[name] for name in JOBS]), st.integers(0, 2**32 - 3), max_size=5
)


@given(own=SOME_TRES, above=SOME_TRES, jobs=SOME_JOBS, submits=st.booleans(), minor=st.sampled_from([40, 44]))
@settings(max_examples=examples(10, 200))
def test_block_then_unblock_gives_back_exactly_what_was_there(
    own: dict[str, dict[str, int]],
    above: dict[str, dict[str, int]],
    jobs: dict[str, int],
    submits: bool,
    minor: int,
) -> None:
    world = World(
        associations=[
            Association(1, "acme", parent="", tres=above),
            Association(
                2,
                "vision",
                parent="acme",
                tres={path: dict(limits) for path, limits in own.items()},
                jobs=dict(jobs),
            ),
        ]
    )
    with StandIn(minor, world=world) as slurm:
        port = a_port(slurm)
        block = enforcement_plan.plan_block(port=port, account="vision", submits=submits)
        assert carry_out(port=port, plan=block, who="op").good
        vision = world.limits("vision")
        unrelated = {path: limits for path, limits in own.items() if path != "total"}
        assert {path: limits for path, limits in vision.tres.items() if path != "total"} == unrelated
        if own.get("total", {}).get("gres/gpu") != 0:
            assert vision.tres["total"]["gres/gpu"] == 0
        assert carry_out(
            port=port, plan=enforcement_plan.plan_unblock(port=port, account="vision"), who="op"
        ).good
        assert (vision.tres, vision.jobs) == (own, jobs)
    BlockReason.objects.all().delete()
    AccountBlock.objects.all().delete()
