"""Jupyter messages: frames, signatures, headers. Frames of a guest are foreign bytes."""
from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jupyter_client.session import DELIM, Session

#: Bytes of a header.
MAX_HEADER = 64 << 10

#: Bytes of a content that this process reads. Others pass unread.
MAX_CONTENT = 16 << 20


@dataclass
class Message:
    """One message. Content, metadata and buffers stay as they came."""

    idents: list[bytes]
    header: bytes
    parent: bytes
    metadata: bytes
    content: bytes
    buffers: list[bytes] = field(default_factory=list)

    @cached_property
    def head(self) -> dict[str, Any]:
        """The header, or an empty one if it is none."""
        return _object(self.header, MAX_HEADER)

    @cached_property
    def parent_head(self) -> dict[str, Any]:
        """The header of the request that the message belongs to."""
        return _object(self.parent, MAX_HEADER)

    @property
    def kind(self) -> str:
        """The type of the message."""
        return str(self.head.get("msg_type", ""))

    @property
    def id(self) -> str:
        """The id of the message."""
        return str(self.head.get("msg_id", ""))

    @property
    def parent_id(self) -> str:
        """The id of the request that the message belongs to."""
        return str(self.parent_head.get("msg_id", ""))

    @property
    def is_request(self) -> bool:
        """Whether the kernel replies."""
        return self.kind.endswith("_request")

    @property
    def reply_kind(self) -> str:
        """The type of the reply."""
        return self.kind.removesuffix("_request") + "_reply"

    def read(self) -> dict[str, Any]:
        """Returns the content, or an empty one if it is no object or too large."""
        return _object(self.content, MAX_CONTENT)


def _object(raw: bytes, limit: int) -> dict[str, Any]:
    if len(raw) > limit:
        return {}
    try:
        got = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return got if isinstance(got, dict) else {}


class Wire:
    """Signs and checks the messages of one side."""

    def __init__(self, key: bytes, scheme: str = "hmac-sha256") -> None:
        self._session = Session(key=key, signature_scheme=scheme)

    @property
    def session(self) -> str:
        """The session of messages that this process makes."""
        return self._session.session

    def parse(self, frames: list[bytes]) -> Message:
        """Reads a message. Raises ValueError if it is none, or if its signature is wrong."""
        try:
            at = frames.index(DELIM)
        except ValueError:
            raise ValueError("frames without a delimiter") from None
        signed = frames[at + 2:at + 6]
        if len(signed) < 4:
            raise ValueError(f"a message of {len(frames) - at} frames")
        if not hmac.compare_digest(self._session.sign(signed), frames[at + 1]):
            raise ValueError("a message with a wrong signature")
        return Message(frames[:at], *signed, frames[at + 6:])

    def frames(self, m: Message) -> list[bytes]:
        """Returns a message as frames, with a signature."""
        signed = [m.header, m.parent, m.metadata, m.content]
        return [*m.idents, DELIM, self._session.sign(signed), *signed, *m.buffers]

    def make(self, kind: str, content: dict[str, Any], of: Message | None = None, *, to: list[bytes] | None = None,
             metadata: dict[str, Any] | None = None) -> Message:
        """Returns a new message that belongs to a request."""
        pack = self._session.pack
        return Message(to if to is not None else of.idents if of else [], pack(self._session.msg_header(kind)),
                       of.header if of else b"{}", pack(metadata or {}), pack(content))
