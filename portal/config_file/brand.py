"""The operator's brand in a configuration file: its name and color, and where its logo stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from portal.config_file.entries import Entry, Rule
from portal.config_file.toml_values import WrongValue
from portal.core.tenants import brand
from portal.core.tenants.logos import LARGEST, BrandError, Logo, encode_logo
from portal.core.tenants.models.brand import LONGEST_NAME
from portal.excerpt import quoted


def read_logo(value: Any) -> Logo:
    """The picture in the file of that name; "": no logo."""
    if not isinstance(value, str):
        raise WrongValue('is the name of a file, such as "logo.png".')
    if not value:
        return Logo()
    try:
        path = Path(value)
        if not path.is_file():  # a pipe would keep us waiting, a device never end
            raise WrongValue(f"names {quoted(value)}, which is no file.")
        with path.open("rb") as file:
            return encode_logo(file.read(LARGEST + 1))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no path"
        raise WrongValue(f"names {quoted(value)}, which cannot be read: {why}.") from error
    except BrandError as error:
        raise WrongValue(f"names {quoted(value)}. {error}") from error


class BrandEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "brand"
    name: Annotated[str, Rule(longest=LONGEST_NAME)] | None = None
    color: Annotated[str, Rule(longest=7)] | None = None
    logo: Annotated[Logo, Rule(value=read_logo)] | None = None

    def write(self) -> None:
        """Have the brand be so; applied again, nothing changes. Raises BrandError."""
        brand.set_brand(**self.columns())
