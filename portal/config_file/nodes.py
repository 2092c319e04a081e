"""What a configuration file declares of a cluster's nodes."""

from __future__ import annotations

from clusters.declared import MOST_GPUS, Node
from clusters.models import CapacityState
from portal.config_file.toml_table import Table


def read(cluster: Table) -> list[Node] | None:
    """All [[cluster.node]] of a cluster; None where the file does not say any. `node = []` takes them away."""
    if not cluster.given("node"):
        return None
    found = [
        _read(table) for table in cluster.tables("node", lambda place, _: f"{cluster.name}, node {place}")
    ]
    return [node for node in found if node is not None]


def _read(table: Table) -> Node | None:
    name = table.text("name", required=True)
    model = table.text("gpu_model", required=True)
    gpus = table.whole("gpus", lowest=1, highest=MOST_GPUS)
    if "gpus" not in table.data:
        table.wrong("gpus", "is missing; write how many GPUs the node has.")
    state = table.choice("state", CapacityState.values)
    since, until = table.day("from"), table.day("until")
    table.done()
    if name is None or model is None or gpus is None:
        return None
    return Node(name, model, gpus, state or CapacityState.UP.value, since, until)
