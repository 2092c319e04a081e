"""What a change of the brand refuses: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "color-pale": _(
        "{color} has a contrast of {ratio}:1 on white, and text needs 4.5:1. The nearest shade with it is {nearest}."
    ),
    "color-unreadable": _(
        "{text} is no color: write # and six digits from 0 to 9 and a to f, such as #0b57a8."
    ),
    "logo-empty": _("The logo is fully transparent: send a picture that can be seen."),
    "logo-moves": _("The logo is animated: send a picture that stands still."),
    "logo-too-detailed": _(
        "The logo is larger than {longest} KiB even at 640 × 160 pixels: send a drawing with fewer colors, not a photo."
    ),
    "logo-too-large": _("The file is larger than {largest} MiB: save the logo smaller."),
    "logo-too-many-pixels": _(
        "The logo has too many pixels: at most 8,000 on a side and 16 million in all. Save it smaller."
    ),
    "logo-too-small": _("The logo is smaller than 16 pixels: send a larger picture."),
    "logo-unreadable": _(
        "The file is no PNG, JPEG or WebP picture. Save the logo as PNG; SVG is not accepted."
    ),
    "logo-white": _(
        "The logo is nearly white: on paper nobody would see it. Send the one for light backgrounds."
    ),
    "name-too-long": _("A name has at most {longest} characters, and this one has {length}."),
    "name-unprintable": _("The name has line breaks or control characters: write it in one line."),
}
