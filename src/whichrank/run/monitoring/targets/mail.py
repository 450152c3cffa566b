"""E-mail by SMTP, with the report as a page attached."""

from __future__ import annotations

import os
import random
import smtplib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from urllib.parse import SplitResult, unquote, urlsplit

from whichrank.model.errors import UsageError
from whichrank.run.monitoring.news import News

SERVER = "WHICHRANK_SMTP"
PASSWORD = "WHICHRANK_SMTP_PASSWORD"  # noqa: S105 - the name of a variable
SENDER = "WHICHRANK_MAIL_FROM"
ANSWER_S = 10.0
LARGEST = 4 << 20


@dataclass(slots=True)
class Mail:
    """Who gets it, and by which server."""

    to: tuple[str, ...]
    sender: str
    server: SplitResult
    pauses_s: tuple[float, ...]
    patience_s: float = 20.0

    @classmethod
    def of(cls, to: str, pauses_s: tuple[float, ...]) -> Mail:
        people = tuple(_address(word) for word in unquote(to).split(",") if word)
        if not people:
            raise UsageError("mailto: has no address", "Write --notify mailto:oncall@example.com.")
        given = os.environ.get(SERVER, "smtp://localhost:25")
        server = urlsplit(given if "://" in given else f"smtp://{given}")
        if server.scheme not in ("smtp", "smtps") or not server.hostname or server.password:
            hint = f"Write it as smtp://[USER@]HOST[:PORT] or smtps://…; the password goes into {PASSWORD}."
            raise UsageError(f"{SERVER} is not the address of a mail server", hint)
        sender = _address(os.environ.get(SENDER) or f"whichrank@{socket.gethostname()}")
        return cls(people, sender, server, pauses_s)

    @property
    def name(self) -> str:
        return self.server.hostname or ""

    def deliver(self, news: News) -> str:
        message, failure, left = self.message(news), "", list(self.to)
        for pause in (0.0, *self.pauses_s):
            time.sleep(pause * random.uniform(1.0, 1.5))  # noqa: S311 - no secret
            failure, again = self._send(message, left)
            if not again:
                break
        return failure

    def message(self, news: News) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.to)
        message["Subject"] = "".join(c if c.isprintable() else " " for c in f"[whichrank] {news.title}"[:200])
        message["X-Priority"] = "1" if news.severity == "critical" else "3"
        steps = [f"{number}. {step}" for number, step in enumerate(news.fields.get("fix", []), 1)]
        message.set_content("\n".join([news.text, *(["", "What to do:"] if steps else []), *steps]) + "\n")
        page = news.page
        if page is not None and page.stat().st_size <= LARGEST:
            message.add_attachment(page.read_bytes(), maintype="text", subtype="html", filename=page.name)
        return message

    def _send(self, message: EmailMessage, left: list[str]) -> tuple[str, bool]:
        """Why it failed, and whether another try may help; who has got it is taken off the list."""
        host, user = self.server.hostname or "", unquote(self.server.username or "")
        safely = self.server.scheme == "smtps"
        try:
            context = ssl.create_default_context()
            with (
                smtplib.SMTP_SSL(host, self.server.port or 465, timeout=ANSWER_S, context=context)
                if safely
                else smtplib.SMTP(host, self.server.port or 25, timeout=ANSWER_S)
            ) as server:
                server.ehlo()
                if not safely and server.has_extn("starttls"):
                    server.starttls(context=context)
                    server.ehlo()
                    safely = True
                if user:
                    if not safely:
                        return "the server offers no encryption, so the password was not sent", False
                    server.login(user, os.environ.get(PASSWORD, ""))
                refused = server.send_message(message, to_addrs=left)
                left[:] = refused
            return _refusal(refused)
        except smtplib.SMTPResponseException as error:
            return f"SMTP {error.smtp_code}", 400 <= error.smtp_code < 500
        except smtplib.SMTPRecipientsRefused as error:
            return _refusal(error.recipients)
        except smtplib.SMTPException as error:
            return type(error).__name__, isinstance(error, smtplib.SMTPServerDisconnected)
        except OSError as error:
            return error.strerror or type(error).__name__, not isinstance(error, ssl.SSLError)


def _refusal(refused: Mapping[str, tuple[int, bytes]]) -> tuple[str, bool]:
    codes = [code for code, _ in refused.values()]
    told = f"SMTP {codes[0]}: {len(codes)} did not get it" if codes else ""
    return told, any(400 <= code < 500 for code in codes)


def _address(word: str) -> str:
    try:
        return str(Address(addr_spec=word.strip()))
    except Exception as error:
        raise UsageError(f"'{word}' is not an e-mail address", "Write it as name@example.com.") from error
