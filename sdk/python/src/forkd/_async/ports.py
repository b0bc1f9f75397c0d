"""Connections to TCP ports of a guest, over HTTP upgrades."""
from __future__ import annotations

from .._forward import Forward, exchange, probe
from .connection import AsyncConnection, sandbox_path
from .. import _aio


async def dial(connection: AsyncConnection, sandbox: str, port: int, data: bytes, *, peek: bool = False) -> bytes:
    """Sends data to a port of the guest and returns the answer. With peek it only connects."""
    path = sandbox_path(sandbox, f"/ports/{port}/connect")
    if peek:
        await _aio.in_thread(probe, connection.address, path)
        return b""
    return await _aio.in_thread(exchange, connection.address, path, data)


class AsyncPortForward:
    """Listens on this host's loopback and forwards to a port of the guest, in threads of its own."""

    def __init__(self, connection: AsyncConnection, sandbox: str, port: int) -> None:
        self._forward = Forward(connection.address, sandbox_path(sandbox, f"/ports/{port}/connect"))

    async def listen(self, port: int) -> tuple[str, int]:
        """Starts to listen. Port 0 chooses a free one. Returns the address."""
        return self._forward.listen(port)

    async def aclose(self) -> None:
        """Closes the listener and all connections."""
        self._forward.close()
