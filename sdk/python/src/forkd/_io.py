"""Waiting and tasks of the synchronous client. _aio has the same names for the asynchronous one."""
from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Input of a program: text, bytes, or chunks of bytes.
Input = str | bytes | Iterable[bytes]


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


class Task:
    """Work beside the caller's, in a thread."""

    def __init__(self, fn: Callable[..., None], *args: Any) -> None:
        context = contextvars.copy_context()  # it has the current span
        self._thread = Thread(target=context.run, args=(self._run, fn, args), daemon=True)
        self._thread.start()

    @staticmethod
    def _run(fn: Callable[..., None], args: tuple[Any, ...]) -> None:
        try:
            fn(*args)
        except Exception:  # the caller sees the end of the program instead
            pass

    def stop(self) -> None:
        """Waits a short time for the end of the work. A thread that waits for input ends with it."""
        self._thread.join(0.2)


def chunks(source: Input) -> Iterator[bytes]:
    """Returns input in chunks of at most 64 KiB."""
    if isinstance(source, str):
        source = source.encode()
    if isinstance(source, (bytes, bytearray, memoryview)):
        for i in range(0, len(source), 65536):
            yield bytes(source[i:i + 65536])
    else:
        yield from source


def call(fn: Callable[[bytes], None], data: bytes) -> None:
    """Calls a callback."""
    fn(data)


def in_order(fn: Callable[[T], R], items: Iterable[T], limit: int) -> Iterator[R]:
    """Calls fn for each item, at most limit at a time, and returns the results in order.

    It takes an item only when there is room, so its memory does not grow with the number of items.
    """
    waiting: deque[Future[R]] = deque()
    source = iter(items)
    pool = ThreadPoolExecutor(limit, thread_name_prefix="forkd-map")
    try:
        while True:
            while len(waiting) < limit:
                try:
                    item = next(source)
                except StopIteration:
                    break
                waiting.append(pool.submit(contextvars.copy_context().run, fn, item))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def upload(pieces: Iterable[bytes], progress: Callable[[int], Any] | None) -> Iterator[bytes]:
    """Yields the pieces of a request's body, and reports the bytes so far."""
    sent = 0
    for piece in pieces:
        yield piece
        sent += len(piece)
        if progress is not None:
            progress(sent)


def in_thread(fn: Callable[..., R], *args: Any) -> R:
    """Runs a function."""
    return fn(*args)


def pieces(source: BinaryIO) -> Iterator[bytes]:
    """Returns the content of an open file in pieces of at most 1 MiB."""
    while piece := source.read(1 << 20):
        yield piece
