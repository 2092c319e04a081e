"""The column in which an encrypted text rests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from portal.core.vault.sealing import Sealed

if TYPE_CHECKING:
    _TextField = models.TextField[Sealed, Sealed]
else:
    _TextField = models.TextField


class SealedField(_TextField):
    """Holds a `Sealed`. A plain text is refused, so that none can be left lying in a row by mistake."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", empty)
        kwargs["editable"] = False  # no form shows it; whoever sets one writes its own
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("editable", None)
        return name, path.replace("portal.core.vault.fields", "portal.core.vault"), args, kwargs

    def from_db_value(self, value: str | None, *_: object) -> Sealed:
        return Sealed(value or "")

    def to_python(self, value: object) -> Sealed:
        if not isinstance(value, Sealed):
            raise TypeError(f"{self.name} takes what portal.core.vault.seal makes, never a plain text.")
        return value

    def get_prep_value(self, value: object) -> str:
        return self.to_python(value).token

    def value_to_string(self, obj: models.Model) -> str:
        """Serialized as it rests."""
        return self.to_python(self.value_from_object(obj)).token


def empty() -> Sealed:
    """No secret: what a column of secrets begins with."""
    return Sealed("")
