"""What was used, by which scheduler account, when. Knows no tenants and no money.

Instants of usage are UTC epoch seconds (`bigint`), since everything downstream is integer
seconds; the tables that people edit use `timestamptz`.
"""

from clusters.models.acts import AccountBlock, AccountLimit, Act, ActKind, ActOutcome, BlockReason
from clusters.models.api_server import ApiServer
from clusters.models.capacity import CapacityInterval, CapacityState
from clusters.models.cluster import ZONE_IN_USE, Account, Cluster, ClusterError, ClusterKind
from clusters.models.connection import Connection
from clusters.models.coverage import IncompleteHour
from clusters.models.declared import DeclaredNode
from clusters.models.files import FileFormat, UsageFile, UsageFilePart
from clusters.models.gpu_errors import GpuError, GpuErrorReading
from clusters.models.meters import DeclaredMeter
from clusters.models.pulls import Pull, Quarantined
from clusters.models.pushed import PushedRun
from clusters.models.telemetry import Telemetry
from clusters.models.usage import Usage, UsageKey, UsageRecord, UsageRevision, VanishedRun
from clusters.models.utilisation import UtilisationHour, UtilisationSource

__all__ = [
    "ZONE_IN_USE",
    "Account",
    "AccountBlock",
    "AccountLimit",
    "Act",
    "ActKind",
    "ActOutcome",
    "ApiServer",
    "BlockReason",
    "CapacityInterval",
    "CapacityState",
    "Cluster",
    "ClusterError",
    "ClusterKind",
    "Connection",
    "DeclaredMeter",
    "DeclaredNode",
    "FileFormat",
    "GpuError",
    "GpuErrorReading",
    "IncompleteHour",
    "Pull",
    "PushedRun",
    "Quarantined",
    "Telemetry",
    "Usage",
    "UsageFile",
    "UsageFilePart",
    "UsageKey",
    "UsageRecord",
    "UsageRevision",
    "UtilisationHour",
    "UtilisationSource",
    "VanishedRun",
]
