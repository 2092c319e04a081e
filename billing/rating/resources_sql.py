"""What the resources of a record count, in SQL: `u` is the record in `usage_input`."""

from __future__ import annotations

from billing.models.rated import MEASURES, Resource

MEASURED = ", ".join(f"'{resource}'" for resource in MEASURES)
RESOURCES = ", ".join(f"('{resource}')" for resource in Resource.values)

# A measure counts over again what GPUs, cores and memory are there for. So a tenant whose plans never charge it has
# nothing rated by it, which would be a row more of every job that nobody reads.
METERED = f"""
SELECT b.tenant_id, m.resource FROM billing_subscription b JOIN billing_planversion v ON v.plan_id = b.plan_id
JOIN unnest(ARRAY[{MEASURED}]) AS m (resource) ON m.resource = ANY (v.charges)
"""
"""The (tenant, measure) that some version of some plan of the tenant charges."""


def amount(resource: str) -> str:
    """Units that a record holds of the resource: GPUs or slices, thousandths of a core, MiB, Slurm's weight."""
    return f"""(CASE {resource} WHEN 'gpu' THEN u.gpus WHEN 'cpu' THEN u.cpu_milli WHEN 'memory' THEN u.memory_mib
    WHEN 'gpu-memory' THEN u.gpu_memory_mib ELSE u.billing END)"""


def parts(resource: str) -> str:
    """How many units make one of what the meter counts; of GPUs the denominator of a slice."""
    return f"(CASE {resource} WHEN 'gpu' THEN u.share_den WHEN 'cpu' THEN 1000 WHEN 'billing' THEN 1 ELSE 1024 END)"


def rated(tenant: str, resource: str) -> str:
    """Whether anything is rated by the resource for the tenant."""
    return f"({resource} NOT IN ({MEASURED}) OR ({tenant}, {resource}) IN ({METERED}))"
