"""The thread that serves all kernels of this process.

Jupyter calls a provisioner from event loops that come and go. Sockets and clients need one loop that stays.
"""
from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import zmq
import zmq.asyncio

T = TypeVar("T")

#: Seconds that the end of this process waits for the end of its sandboxes.
AT_EXIT = 10

_lock = threading.Lock()
_loops: dict[int, tuple[asyncio.AbstractEventLoop, zmq.asyncio.Context]] = {}  # by process: threads end in a fork
_closers: set[Callable[[], Coroutine[Any, Any, None]]] = set()


def _current() -> tuple[asyncio.AbstractEventLoop, zmq.asyncio.Context]:
    with _lock:
        got = _loops.get(os.getpid())
        if got is None:
            loop = asyncio.SelectorEventLoop()  # the one that ZeroMQ supports on each platform
            threading.Thread(target=loop.run_forever, name="forkd-jupyter", daemon=True).start()
            got = _loops[os.getpid()] = loop, zmq.asyncio.Context()
        return got


def context() -> zmq.asyncio.Context:
    """Returns the ZeroMQ context of the thread."""
    return _current()[1]


async def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs work in the thread, and waits for it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _current()[0]))


def at_exit(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Has close run when this process ends in order, unless ``forget`` comes first."""
    _closers.add(close)


def forget(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Withdraws an ``at_exit``."""
    _closers.discard(close)


@atexit.register
def _close_all() -> None:
    if os.getpid() not in _loops or not _closers:
        return

    async def all_of_them() -> None:
        await asyncio.wait([asyncio.ensure_future(close()) for close in list(_closers)], timeout=AT_EXIT)

    try:
        asyncio.run_coroutine_threadsafe(all_of_them(), _loops[os.getpid()][0]).result(AT_EXIT + 1)
    except Exception:  # a sandbox without connections is paused
        pass
