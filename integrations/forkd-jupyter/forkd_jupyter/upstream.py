"""The sockets between the relay and the kernel in the guest. A new set is made after each fork, rollback and resume."""
from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import forkd
import zmq

from . import loop
from .guest import CHANNELS, KernelError, Place
from .wire import Message, Wire

#: Bytes of a message from the guest. A larger one ends the connection.
MAX_MESSAGE = 256 << 20

#: Seconds after which a kernel that has not answered is asked again, first and at most.
NUDGE = 1, 5

#: Seconds between looks at the process of a kernel that has not answered yet.
LOOK = 5

#: Milliseconds between attempts to connect, first and at most. Each is a request to the daemon.
RECONNECT = 200, 2000


class Upstream:
    """A connection to a kernel."""

    def __init__(self, place: Place, receive: Callable[[str, Message], None], lost: Callable[[], None]) -> None:
        self.place, self._receive, self._lost = place, receive, lost
        self.wire = Wire(place.kernel.key, place.kernel.scheme)
        self._stack = AsyncExitStack()
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._seen = {channel: asyncio.Event() for channel in CHANNELS}
        self.open = False  # messages go to the front ends

    async def connect(self, timeout: float, restored: bool) -> None:
        """Connects, and waits until output arrives: a message published before that would be lost.

        A restored kernel first leaves the cell that it was in.
        """
        name = secrets.token_bytes(8).hex().encode()  # one for all channels, as input requests go by it
        for channel, address in (await self.place.forwards(self._stack)).items():
            s = loop.context().socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
            s.linger, s.maxmsgsize, (s.reconnect_ivl, s.reconnect_ivl_max) = 0, MAX_MESSAGE, RECONNECT
            s.setsockopt(zmq.SUBSCRIBE, b"") if channel == "iopub" else s.setsockopt(zmq.IDENTITY, name)
            self._sockets[channel] = s
            s.connect(address)
            self._tasks.append(asyncio.ensure_future(self._read(channel, s)))
        await self._nudge("control", timeout)
        if restored:
            await self.send("control", self.wire.make("forkd_restored", {}))
            await self._nudge("shell", timeout)
        for s in self._sockets.values():
            self._tasks.append(asyncio.ensure_future(self._watch(s)))
        self.open = True

    async def _nudge(self, channel: str, timeout: float) -> None:
        end, look, wait = time.monotonic() + timeout, time.monotonic() + LOOK, float(NUDGE[0])
        wanted = {channel: self._seen[channel], "iopub": self._seen["iopub"]}
        while True:
            await self.send(channel, self.wire.make("kernel_info_request", {}))
            try:
                await asyncio.wait_for(asyncio.gather(*(e.wait() for e in wanted.values())), wait)
                return
            except asyncio.TimeoutError:
                wait = min(wait * 1.5, NUDGE[1])
            if time.monotonic() > look:
                look = time.monotonic() + LOOK
                if not await self.place.alive():
                    raise KernelError(await self.place.why_not())
            if time.monotonic() > end:
                raise KernelError(f"the kernel in {self.place.box.id} has not answered for {timeout:.0f} s. "
                                  f"{await self.place.log()}")

    async def send(self, channel: str, m: Message) -> None:
        """Sends a message to the kernel."""
        await self._sockets[channel].send_multipart(self.wire.frames(m))

    async def ask_when_idle(self) -> None:
        """Has ``idle`` set when the cell that runs now has ended."""
        self._seen["shell"].clear()
        await self.send("shell", self.wire.make("kernel_info_request", {}))

    @property
    def idle(self) -> asyncio.Event:
        """See ask_when_idle."""
        return self._seen["shell"]

    async def _read(self, channel: str, s: zmq.asyncio.Socket) -> None:
        while True:
            try:
                m = self.wire.parse(await s.recv_multipart())
            except ValueError:
                continue  # not the kernel's: a program of the guest that has no key
            if m.parent_head.get("session") == self.wire.session:
                self._seen[channel].set()
            elif self.open and m.kind != "iopub_welcome":
                self._receive(channel, m)

    async def _watch(self, s: zmq.asyncio.Socket) -> None:
        monitor = s.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        await monitor.recv_multipart()
        if self.open:
            self.open = False
            self._lost()

    async def close(self) -> None:
        """Closes all connections."""
        self.open = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for s in self._sockets.values():
            s.disable_monitor()
            s.close(0)
        await self._stack.aclose()


def unreachable(e: Exception) -> bool:
    """Whether an error means that the daemon may be back soon."""
    return isinstance(e, (forkd.UnreachableError, forkd.ConnectionBrokenError, forkd.GuestGoneError, OSError))
