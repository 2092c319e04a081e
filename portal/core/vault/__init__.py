"""Texts that rest encrypted: `seal` makes one, `SealedField` keeps it, only `reveal()` gives it back.

Below everything else and importing nothing of ours. The keys are CLUSTERTAB_SECRET_KEYS: the first
encrypts, all of them decrypt, so a new one is put in front and the old one goes once nothing needs it.
"""

from portal.core.vault.fields import SealedField
from portal.core.vault.sealing import Sealed, VaultError, lacking, seal

__all__ = ["Sealed", "SealedField", "VaultError", "lacking", "seal"]
