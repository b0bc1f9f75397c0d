"""Relays messages between Jupyter's front ends and the kernel in a sandbox.

Front ends stay connected while the kernel behind them is rolled back, replaced or paused. Requests wait here, and go to
the kernel one by one: a request that waited in the kernel would be part of its snapshots, and run again in each.
"""
from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import forkd

from .branches import Branches, shown
from .front import Front
from .guest import KernelError, Place
from .upstream import Upstream, unreachable
from .wire import Message, Wire

#: Seconds that a kernel may take to start. An emulated CPU takes its time.
STARTUP = 180

#: Seconds without a daemon after which the kernel counts as dead.
PATIENCE = 120

#: Seconds that the kernel has for its end.
SHUTDOWN = 10

#: Seconds between the end of a request on iopub and the reply, which is another connection.
REPLY_DELAY = 5

#: Requests that wait. More are an endless loop of a front end.
MAX_WAITING = 10_000


@dataclass
class Running:
    """The request that the kernel works on."""

    request: Message
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        """The id of the request."""
        return self.request.id


class Relay:
    """The relay of one kernel. All of it runs in one thread."""

    def __init__(self, wire: Wire, log: Any, idle: float) -> None:
        self.log, self._idle = log, idle
        self.front = Front(wire, self._from_front, log)
        self.branches = Branches()
        self.place: Place | None = None
        self.exit_code: int | None = None
        self.ended = asyncio.Event()
        self._up: Upstream | None = None
        self._changing = asyncio.Lock()  # guards _up
        self._ending = asyncio.Lock()  # taken before _changing
        self._queue: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._running: Running | None = None
        self._open: dict[str, tuple[str, Message]] = {}  # requests without a reply, with their channels, by id
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pumps: list[asyncio.Task[None]] = []
        self._stopping = False  # the kernel ends by request
        self._stopped = asyncio.Event()
        self._used = time.monotonic()

    # Life.

    async def start(self, place: Place) -> None:
        """Starts the kernel of a place, and waits until it answers."""
        self.place, self.exit_code = place, None
        self._stopping = False
        self._stopped.clear()
        self.ended.clear()
        try:
            await place.start()
            async with self._changing:
                await self._connect(place.found)
        except BaseException:
            await place.end()
            raise
        self.front.beats = True
        self._pumps = [asyncio.ensure_future(self._pump()), asyncio.ensure_future(self._look_for_idleness())]

    async def end(self, code: int = 0) -> None:
        """Ends the kernel and its sandbox. The front ends' sockets stay, for a restart."""
        if self.place is None:
            return
        async with self._ending:
            if not self.ended.is_set():
                await self._end(code)

    async def _end(self, code: int) -> None:
        self.exit_code = code if self.exit_code is None else self.exit_code
        self.front.beats = False
        self._stop(self._pumps)
        async with self._changing:
            await self._disconnect()
        try:
            await asyncio.wait_for(self.place.end(), SHUTDOWN)
        except (forkd.ForkdError, OSError, asyncio.TimeoutError) as e:
            self.log.warning("end of %s: %s", self.place.box.id, e)
        self._queue.clear()
        self._open.clear()
        self._running = None
        self.ended.set()

    async def close(self) -> None:
        """Ends all, and deletes the branches."""
        await self.end()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        if self.place is not None and self.place.client is not None:
            try:
                for reason in await asyncio.wait_for(self.branches.delete(self.place), 60):
                    self.log.warning("%s", reason)
            except asyncio.TimeoutError:
                self.log.warning("branches of %s: the daemon does not answer", self.place.box.id)
            await self.place.close()
        await self.front.close()

    async def _die(self, error: str, reason: str) -> None:
        """Ends the kernel because of a fault, which the front ends see."""
        self.log.error("kernel in %s: %s", self.place.box.id, reason)
        self.exit_code = 1  # Jupyter may ask as soon as it has the errors
        await self._fail_all(error, reason)
        await self.end(1)

    def _reason(self, e: Exception) -> tuple[str, str]:
        text = getattr(e, "message", None) or str(e)
        if not unreachable(e):
            return "KernelDied", text
        url, box = self.place.client.url, self.place.box.id
        return "DaemonUnreachable", (f"the daemon at {url} has not answered for {PATIENCE} s ({text}). Restart the "
                                     f"kernel when it is back; {box} is paused meanwhile")

    def _go(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._went)

    def _went(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error("relay", exc_info=task.exception())

    @staticmethod
    def _stop(tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()

    # Connections to the kernel.

    async def _connect(self, restored: bool) -> None:
        up = Upstream(self.place, self._from_guest, self._lost)
        try:
            await up.connect(STARTUP, restored)
        except BaseException:
            await up.close()
            raise
        self._up, self._used = up, time.monotonic()

    async def _disconnect(self) -> None:
        up, self._up = self._up, None
        if up is not None:
            await up.close()

    def _lost(self) -> None:
        if self._stopping:
            self._stopped.set()
            return
        self._go(self._reconnect())

    async def _reconnect(self) -> None:
        """Connects again after a lost connection, unless the sandbox is paused."""
        try:
            async with self._changing:
                if self._up is not None and self._up.open or self.ended.is_set():
                    return
                await self._disconnect()
                if not await self._retried():
                    return
            await self._lost_reply()
        except (KernelError, forkd.ForkdError, OSError) as e:
            await self._die(*self._reason(e))

    async def _retried(self) -> bool:
        """Connects, if needed for as long as the daemon may be away. Returns false if the sandbox is paused."""
        end, wait = time.monotonic() + PATIENCE, 0.2
        while True:
            try:
                if (await self.place.box.info()).status == "paused" and self._running is None and not self._queue:
                    return False
                if not await self.place.alive():
                    raise KernelError(await self.place.why_not())
                await self._connect(restored=False)
                return True
            except (forkd.ForkdError, OSError) as e:
                if not unreachable(e) or time.monotonic() > end:
                    raise
                self.log.warning("kernel in %s: %s", self.place.box.id, e)
                await asyncio.sleep(wait)
                wait = min(2 * wait, 5)

    async def _lost_reply(self) -> None:
        """Ends the request whose reply was lost with the connection."""
        running, up = self._running, self._up
        if running is None or up is None:
            return
        await up.ask_when_idle()
        await up.idle.wait()
        await asyncio.sleep(REPLY_DELAY)
        if self._running is running and self._up is up:
            await self._answer_error("shell", running.request, "ConnectionLost",
                                     "the connection to the sandbox broke while this ran. It has ended, and its "
                                     "variables are there; output is missing")
            running.done.set()

    async def _look_for_idleness(self) -> None:
        """Lets the sandbox pause when the notebook is not used."""
        while self._idle > 0:
            await asyncio.sleep(min(self._idle, 5))
            if time.monotonic() - self._used < self._idle or self._running or self._open:
                continue
            async with self._changing:
                await self._disconnect()

    async def _upstream(self) -> Upstream | None:
        """Returns the connection, after a pause a new one, or None if the kernel has ended."""
        if self._up is None or not self._up.open:
            await self._reconnect_now()
        return self._up

    async def _reconnect_now(self) -> None:
        try:
            async with self._changing:
                if (self._up is None or not self._up.open) and not self.ended.is_set():
                    await self._disconnect()
                    await self._resumed()
        except (KernelError, forkd.ForkdError, OSError) as e:
            await self._die(*self._reason(e))

    async def _resumed(self) -> None:
        if (await self.place.box.info()).status == "paused":
            await self.place.box.resume()
        await self._retried()

    # From the front ends.

    def _from_front(self, channel: str, m: Message) -> None:
        self._used = time.monotonic()
        if self.place is None or self.ended.is_set():
            return  # as a dead kernel: the front end sees no heartbeat
        waits = channel == "shell" and not m.head.get("subshell_id") and (m.is_request or self._queue)
        if waits and len(self._queue) < MAX_WAITING:
            self._queue.append(m)
            self._wake.set()
        elif waits:
            self.log.warning("%s is dropped: %d requests wait", m.kind, MAX_WAITING)
        else:
            self._go(self._pass_on(channel, m))

    async def _pass_on(self, channel: str, m: Message) -> None:
        up = await self._upstream()
        if up is None:
            return
        if m.is_request:
            self._open[m.id] = channel, m
        await up.send(channel, m)

    async def _pump(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            if await self._upstream() is None:
                return
            m = self._queue.popleft()
            if not m.is_request:
                await self._pass_on("shell", m)
                continue
            self._running = Running(m)
            await self._pass_on("shell", m)
            await self._running.done.wait()
            self._running = None

    # From the guest.

    def _from_guest(self, channel: str, m: Message) -> None:
        self._used = time.monotonic()
        if channel == "iopub" and m.kind == "forkd_request":
            self._go(self._magic(m))
            return
        self._go_in_order(channel, m)
        if channel == "iopub":
            if m.kind == "status" and self._is_running(m) and m.read().get("execution_state") == "idle":
                asyncio.get_running_loop().call_later(REPLY_DELAY, self._running.done.set)
        elif channel in ("shell", "control") and m.kind.endswith("_reply"):
            self._replied(channel, m)

    def _go_in_order(self, channel: str, m: Message) -> None:
        # Sends to these sockets do not wait, and asyncio starts tasks in order.
        self._go(self.front.send(channel, m))

    def _is_running(self, m: Message) -> bool:
        return self._running is not None and self._running.id == m.parent_id

    def _replied(self, channel: str, m: Message) -> None:
        self._open.pop(m.parent_id, None)
        if channel == "shell" and self._is_running(m):
            if m.kind == "execute_reply" and m.read().get("status") == "error":
                self._abort_waiting(self._running.request)
            self._running.done.set()
        if channel == "control" and m.kind == "shutdown_reply":
            self._stopping = True
            self._go(self._shut_down())

    def _abort_waiting(self, failed: Message) -> None:
        """Aborts the cells after one that failed, as a kernel does with those in its queue."""
        content = failed.read()
        if not content.get("stop_on_error", True) or content.get("silent"):
            return
        kept = [m for m in self._queue if m.kind != "execute_request"]
        for m in self._queue:
            if m.kind == "execute_request":
                self._go(self._abort(m))
        self._queue = deque(kept)

    async def _abort(self, m: Message) -> None:
        await self.front.publish("status", {"execution_state": "busy"}, m)
        status = {"status": "aborted"}
        await self.front.send("shell", self.front.wire.make(m.reply_kind, status, m, metadata=status))
        await self.front.publish("status", {"execution_state": "idle"}, m)

    async def _shut_down(self) -> None:
        """Ends the sandbox when the kernel has ended, with its handlers of atexit."""
        try:
            await asyncio.wait_for(self._stopped.wait(), SHUTDOWN)
        except asyncio.TimeoutError:
            pass
        await self.end()

    # Errors of this process.

    async def _answer_error(self, channel: str, m: Message, error: str, reason: str) -> None:
        self._open.pop(m.id, None)
        content = {"ename": error, "evalue": reason, "traceback": [f"{error}: {reason}"]}
        if m.kind == "execute_request":
            await self.front.publish("error", content, m)
        reply = {"status": "error", **content, "execution_count": 0}
        await self.front.send(channel, self.front.wire.make(m.reply_kind, reply, m))
        await self.front.publish("status", {"execution_state": "idle"}, m)

    async def _fail_all(self, error: str, reason: str) -> None:
        for channel, m in list(self._open.values()):
            await self._answer_error(channel, m, error, reason)
        queue, self._queue = self._queue, deque()
        for m in queue:
            if m.is_request:
                await self._answer_error("shell", m, error, reason)

    # Magics.

    async def _magic(self, m: Message) -> None:
        content, running = m.read(), self._running
        answer: dict[str, Any] = {"id": content.get("id")}
        try:
            if running is None or running.id != m.parent_id:
                raise forkd.InvalidRequestError("only a cell that runs can use this magic")
            text = await self._do(str(content.get("do")), str(content.get("name", ""))[:200], content, running)
            if text is None:
                return  # there is no kernel that waits
            answer["text"] = text
        except (forkd.ForkdError, KernelError, OSError) as e:
            answer["error"] = str(e)
        if self._up is not None and self._up.open:
            await self._up.send("control", self._up.wire.make("forkd_answer", answer))

    async def _do(self, do: str, name: str, content: dict[str, Any], running: Running) -> str | None:
        if do == "branch":
            return await self.branches.branch(self.place, name)
        if do == "snapshot":
            return await self.branches.snapshot(self.place, name)
        if do == "branches":
            return self.branches.listed()
        if do == "sandbox":
            return await shown(self.place)
        if do == "rollback":
            return await self._roll_back(name, content, running)
        raise forkd.InvalidRequestError(f"unknown request {do!r}")

    async def _roll_back(self, name: str, content: dict[str, Any], running: Running) -> None:
        name, tag = self.branches.tag(name)
        async with self._changing:
            await self._disconnect()
            try:
                await self.place.back_to(tag)
            except forkd.ForkdError:
                await self._connect(restored=False)
                raise
            try:
                await self._connect(restored=True)
            except (KernelError, forkd.ForkdError, OSError) as e:
                self._go(self._die("KernelDied", f"rollback to {name}: {e}"))
                return
        self._open.pop(running.id, None)
        count = content.get("execution_count")
        await self._rolled_back(running, f"back at {name}\n", count if isinstance(count, int) else 0)

    async def _rolled_back(self, running: Running, text: str, count: int) -> None:
        """Completes the cell of a rollback, as its kernel is gone. Requests beside it have no answer any more."""
        m = running.request
        for channel, other in list(self._open.values()):
            await self._answer_error(channel, other, "RolledBack", "the sandbox was rolled back")
        if not m.read().get("silent"):
            await self.front.publish("stream", {"name": "stdout", "text": text}, m)
        reply = {"status": "ok", "execution_count": count, "payload": [], "user_expressions": {}}
        await self.front.send("shell", self.front.wire.make(m.reply_kind, reply, m))
        await self.front.publish("status", {"execution_state": "idle"}, m)
        running.done.set()
