"""An e-mail whose HTML shows the operator's logo, which it carries: nothing is loaded from anywhere."""

from __future__ import annotations

import re
from email.message import Message
from email.mime.image import MIMEImage
from email.mime.multipart import MIMEMultipart
from typing import Any

from django.core.mail import EmailMultiAlternatives

from portal.core.tenants.brand import load_logo

LOGO = re.compile(r'src="cid:([0-9a-f]{64})@logo"')  # as templates/emails/notice.html has it


class IllustratedEmail(EmailMultiAlternatives):
    """Its HTML and the logo that this names stand in one multipart/related (RFC 2387), beside the plain text."""

    digest, png = "", b""

    def attach_html(self, html: str) -> None:
        """One query where the HTML names a logo."""
        self.attach_alternative(html, "text/html")
        if match := LOGO.search(html):
            self.digest, self.png = match[1], load_logo(match[1])

    def message(self, **options: Any) -> Any:
        message = super().message(**options)
        if self.png:
            _place(message, self._picture())
        return message

    def _picture(self) -> MIMEImage:
        picture = MIMEImage(self.png, "png")
        picture.add_header("Content-ID", f"<{self.digest}@logo>")
        picture.add_header("Content-Disposition", "inline", filename="logo.png")
        return picture


def _place(message: Message[str, str], picture: MIMEImage) -> None:
    """The picture beside the HTML of the message, wherever in it that stands."""
    for part in list(message.walk()):
        parts = part.get_payload()
        if not isinstance(parts, list):
            continue
        for place, child in enumerate(parts):
            if isinstance(child, Message) and child.get_content_type() == "text/html":
                related = MIMEMultipart("related", type="text/html")
                related.attach(child)
                related.attach(picture)
                parts[place] = related
