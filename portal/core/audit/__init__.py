"""Who changed what, when, before and after: kept by triggers of the database, whoever made the change.

Below everything else and importing nothing of ours. `track` marks a model, `acting_as` names who acts and
why, and `AuditEntry` is one row of one change. `portal/schema/audit.sql` has what the database does.
"""

from portal.core.audit.actor import acting_as
from portal.core.audit.tracking import track

__all__ = ["acting_as", "track"]
