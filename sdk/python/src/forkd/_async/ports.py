"""Connections to TCP ports of a guest, over HTTP upgrades."""
from __future__ import annotations

import socket

from .. import _aio, _forward
from .connection import AsyncConnection, sandbox_path


async def connect(connection: AsyncConnection, sandbox: str, port: int) -> socket.socket:
    """Connects to a port of the guest."""
    s = await _aio.in_thread(_forward.connect, connection.address, _path(sandbox, port), connection.trace.headers())
    s.settimeout(None)
    return s


async def probe(connection: AsyncConnection, sandbox: str, port: int) -> None:
    """Connects to a port of the guest, and closes the connection."""
    (await connect(connection, sandbox, port)).close()


async def request(connection: AsyncConnection, sandbox: str, port: int, data: bytes, timeout: float,
                  max_bytes: int) -> bytes:
    """Sends data to a port of the guest and returns the answer."""
    return await _aio.in_thread(_forward.exchange, connection.address, _path(sandbox, port), data, timeout, max_bytes,
                                connection.trace.headers())


class AsyncPortForward:
    """Listens on this host's loopback and forwards to a port of the guest, in threads of its own."""

    def __init__(self, connection: AsyncConnection, sandbox: str, port: int) -> None:
        self._forward = _forward.Forward(connection.address, _path(sandbox, port))

    async def listen(self, port: int) -> tuple[str, int]:
        """Starts to listen. Port 0 chooses a free one. Returns the address."""
        return self._forward.listen(port)

    async def aclose(self) -> None:
        """Closes the listener and all connections."""
        self._forward.close()


def _path(sandbox: str, port: int) -> str:
    return sandbox_path(sandbox, f"/ports/{port}/connect")
