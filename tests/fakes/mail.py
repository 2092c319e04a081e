"""Mail servers that fail: one says no, one goes away in the middle, one takes so many mails a connection."""

from __future__ import annotations

import smtplib
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage as DjangoMessage


class Refuses(BaseEmailBackend):
    def send_messages(self, email_messages: Sequence[DjangoMessage]) -> int:
        raise smtplib.SMTPDataError(550, b"not today")


class Dies(BaseEmailBackend):
    def send_messages(self, email_messages: Sequence[DjangoMessage]) -> int:
        raise smtplib.SMTPServerDisconnected("Connection unexpectedly closed")


class Counting(socketserver.ThreadingTCPServer):
    """A real one on 127.0.0.1 that says goodbye after so many mails of a connection, as large providers do.

    `heard` is told each command before it is answered, and "TEXT" when a mail has come to its end. Where it answers
    False for that, the mail is lost: the server went down before it was written anywhere.
    """

    daemon_threads = True

    def __init__(self, most: int) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.most = most
        self.ids: list[str] = []  # of the mails that were taken, in their order
        self.mails: list[EmailMessage] = []  # those
        self.refuses: set[str] = set()  # addresses that it knows nobody of
        self.on_command: Callable[[str], bool] = lambda command: True

    @property
    def accepted(self) -> int:
        return len(self.ids)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"smtp://{host!s}:{port}"


class _Conversation(socketserver.StreamRequestHandler):
    server: Counting

    def handle(self) -> None:
        with suppress(ConnectionError):  # the other side was killed
            self._talk()

    def _talk(self) -> None:
        self._say("220 hello")
        left = self.server.most
        while left and (line := self.rfile.readline()):
            verb = line[:4].decode().upper().strip()
            self.server.on_command(verb)
            if verb == "RCPT" and any(to in line.decode() for to in self.server.refuses):
                self._say("550 no such user here")
                continue
            if verb == "QUIT":
                break
            if verb == "DATA":
                self._say("354 go on")
                text = self._mail()
                if text is not None and self.server.on_command("TEXT"):
                    mail = message_from_bytes(text, policy=default)
                    self.server.ids.append(str(mail["Message-ID"]))
                    self.server.mails.append(mail)
                left -= 1
            self._say("250 fine")

    def _mail(self) -> bytes | None:
        """One that came whole."""
        lines: list[bytes] = []
        while line := self.rfile.readline():
            if line == b".\r\n":
                return b"".join(lines)
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return None

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def counting(most: int) -> Iterator[Counting]:
    with Counting(most) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
