"""The shape of a job as options of a command."""

from __future__ import annotations

from django.core.management.base import CommandParser

SHAPE = (
    *("gpus", "gpu_share", "gpu_model", "mig_profile", "cpus", "memory_gib"),
    *("hours", "account", "queue", "qos", "priority_class"),
)
"""Those of `add_shape`, for `quotes.job_of`."""


def add_shape(parser: CommandParser) -> None:
    """The cluster, and what a job on it asks for."""
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--hours", required=True, help="that it runs; decimals are fine")
    parser.add_argument("--gpus", default="", help="GPUs, or slices of --gpu-share each")
    parser.add_argument("--gpu-share", default="", metavar="N/D", help="what one of them is of a GPU: 1/7")
    parser.add_argument("--gpu-model", default="")
    parser.add_argument("--mig-profile", default="")
    parser.add_argument("--cpus", default="", help="cores; decimals are fine")
    parser.add_argument("--memory-gib", default="")
    parser.add_argument("--account", default="", help="any account of the tenant without it")
    parser.add_argument("--queue", default="", help="partition or queue")
    parser.add_argument("--qos", default="")
    parser.add_argument("--priority-class", default="")
