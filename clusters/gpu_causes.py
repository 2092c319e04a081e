"""What an error of a GPU is called, in stored errors and in rules: the XID, or the counter of its memory."""

from __future__ import annotations

ECC = "ECC_DBE"  # double-bit: detected, not corrected
ROW_REMAP = "ROW_REMAP"  # a row was replaced, since it could not be corrected
ROW_REMAP_FAILURE = "ROW_REMAP_FAILURE"  # a row could not even be replaced
MEMORY_CAUSES = (ECC, ROW_REMAP, ROW_REMAP_FAILURE)


def xid_cause(xid: int) -> str:
    return f"XID {xid}"
