"""The sockets that Jupyter's front ends connect to. They stay while the kernel behind them changes."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import zmq

from . import loop
from .wire import Message, Wire

#: Messages of output that wait for a slow front end. Then it loses some, and no other does.
OUTPUT_QUEUE = 10_000

CHANNELS = ("shell", "control", "stdin", "iopub", "hb")


class Front:
    """The five sockets of a connection file."""

    def __init__(self, wire: Wire, receive: Callable[[str, Message], None], log: Any) -> None:
        self.wire, self._receive, self._log = wire, receive, log
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.ports: dict[str, int] = {}
        self.beats = True  # heartbeats are answered

    async def bind(self, transport: str, ip: str, ports: dict[str, int]) -> dict[str, int]:
        """Binds the sockets. A port of 0 is chosen, except for the transport ipc. Returns the ports."""
        if self.ports and self.ports == ports:
            return self.ports
        await self.close()
        kinds = {"iopub": zmq.XPUB}
        try:
            for channel in CHANNELS:
                s = self._sockets[channel] = loop.context().socket(kinds.get(channel, zmq.ROUTER))
                s.linger = 1000
                if channel == "iopub":
                    s.sndhwm, s.xpub_verbose = OUTPUT_QUEUE, True
                else:
                    s.router_handover = True
                self.ports[channel] = _bind(s, transport, ip, ports[channel])
        except BaseException:
            await self.close()
            raise
        work = {"hb": self._beat, "iopub": self._welcome}
        for channel in CHANNELS:
            self._tasks.append(asyncio.ensure_future(work.get(channel, self._read)(channel)))
        return self.ports

    async def send(self, channel: str, m: Message) -> None:
        """Sends a message to the front end that it is addressed to, or to all by iopub."""
        if channel in self._sockets:
            await self._sockets[channel].send_multipart(self.wire.frames(m))

    async def publish(self, kind: str, content: dict[str, Any], of: Message | None) -> None:
        """Publishes a message of this process."""
        await self.send("iopub", self.wire.make(kind, content, of, to=[kind.encode()]))

    async def _read(self, channel: str) -> None:
        while True:
            frames = await self._sockets[channel].recv_multipart()
            try:
                self._receive(channel, self.wire.parse(frames))
            except ValueError as e:
                self._log.warning("%s: %s", channel, e)

    async def _beat(self, channel: str) -> None:
        while True:
            frames = await self._sockets[channel].recv_multipart()
            if self.beats:
                await self._sockets[channel].send_multipart(frames)

    async def _welcome(self, channel: str) -> None:
        while True:
            event = (await self._sockets[channel].recv_multipart())[0]
            if event[:1] == b"\x01":
                topic = event[1:].decode("utf-8", "replace")
                await self.send(channel, self.wire.make("iopub_welcome", {"subscription": topic}, to=[event[1:]]))

    async def close(self) -> None:
        """Closes the sockets."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for s in self._sockets.values():
            s.close()
        self._tasks, self._sockets, self.ports = [], {}, {}


def _bind(s: zmq.asyncio.Socket, transport: str, ip: str, port: int) -> int:
    if transport == "ipc":
        s.bind(f"ipc://{ip}-{port}")
    elif port:
        s.bind(f"tcp://{ip}:{port}")
    else:
        return s.bind_to_random_port(f"tcp://{ip}")
    return port
