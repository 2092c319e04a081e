"""What the GPUs of pods drew: the power that an exporter told, pushed into a real Prometheus, integrated by hand.

`DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).` is a line of dcgm-exporter's default-counters.csv; its labels are
those of the recorded utilisation. Not yet seen from a live source.
"""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connectors.base import EnergyHour
from clusters.connectors.prometheus import Scope, Utilisation
from tests.contracts.prometheus_reading import HOUR, connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

POWER = "DCGM_FI_DEV_POWER_USAGE"
BLANK = 9223372036854775794.0
story = Stories()


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


@story
def _pods(worlds: Worlds) -> None:
    world = worlds.new("power")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    world.pod("trains")
    world.dcgm([(0, 1800, 700.0), (1800, None, 100.0)], holder="trains", metric=POWER)
    world.pod("blank", since=0)
    world.dcgm([(0, 1800, 300.0), (1800, None, BLANK)], holder="blank", gpu=1, metric=POWER)
    world.pod("silent")
    world.pod("slice", resource="nvidia_com_mig_1g_10gb")
    world.dcgm([(0, None, 700.0)], holder="slice", gpu=2, metric=POWER, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    world.dcgm([(0, None, 65.0)], gpu=3, metric=POWER)  # nobody's


def test_power_is_integrated_over_what_was_measured(worlds: Worlds) -> None:
    options: dict[str, Any] = {"matcher": 'cluster="power"', "utilisation": Utilisation(scope=Scope.OFF)}
    begin, end = worlds.begin, worlds.begin + World.LENGTH - 600
    source = connector(worlds.url, energy=True, **options)
    hours = [row for row in source.usage(since=begin, until=end, open_keys=()) if isinstance(row, EnergyHour)]
    read = {(row.run.job_id, row.hour): row.joules for row in hours}
    assert read == {
        ("team/trains", begin): 700 * 1800 + 100 * 1800,  # 0.4 kWh
        ("team/blank", begin): 300 * 1800,  # the other half hour is unknown, and neither 0 nor 300 W
    }
    notes = source.reading.notes
    (note,) = [note for note in notes if "energy of the others is unknown" in note]
    assert note.startswith("Of 10,800 GPU-seconds of whole GPUs")
    assert f"{POWER} tells the power of 5,400:" in note
    assert [note for note in notes if "blank or above 5000" in note]
    assert [note for note in notes if note.startswith("The energy of 1 container with a part of a GPU")]
    assert begin % HOUR == 0

    off = connector(worlds.url, **options)
    rows = list(off.usage(since=begin, until=end, open_keys=()))
    assert not [row for row in rows if isinstance(row, EnergyHour)]


def test_the_connection_test_counts_the_gpus_that_tell_their_power(worlds: Worlds) -> None:
    now = worlds.begin + World.LENGTH
    with present(worlds.url, now) as url:
        finding = findings_of(url, now, {"matcher": 'cluster="power"'})["Energy"]
    assert finding.sentence.startswith(f"{POWER} has ")
