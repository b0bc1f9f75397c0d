"""Waiting and tasks of the asynchronous client. _io has the same names for the synchronous one."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Input of a program: text, bytes, or chunks of bytes.
Input = str | bytes | Iterable[bytes] | AsyncIterable[bytes]


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


class Task:
    """Work beside the caller's."""

    def __init__(self, fn: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        self._task = asyncio.ensure_future(fn(*args))

    async def stop(self) -> None:
        """Ends the work and waits for its end. Its errors are dropped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def chunks(source: Input) -> AsyncIterator[bytes]:
    """Returns input in chunks of at most 64 KiB."""
    if isinstance(source, str):
        source = source.encode()
    if isinstance(source, (bytes, bytearray, memoryview)):
        for i in range(0, len(source), 65536):
            yield bytes(source[i:i + 65536])
    elif isinstance(source, AsyncIterable):
        async for chunk in source:
            yield chunk
    else:
        for chunk in source:
            yield chunk


async def call(fn: Callable[[bytes], Awaitable[None] | None], data: bytes) -> None:
    """Calls a callback, which may be asynchronous."""
    got = fn(data)
    if got is not None:
        await got


async def in_order(fn: Callable[[T], Awaitable[R]], items: Iterable[T], limit: int) -> AsyncIterator[R]:
    """Calls fn for each item, at most limit at a time, and returns the results in order.

    It takes an item only when there is room, so its memory does not grow with the number of items.
    """
    waiting: list[asyncio.Future[R]] = []
    source = iter(items)
    try:
        while True:
            while len(waiting) < limit:
                try:
                    item = next(source)
                except StopIteration:
                    break
                waiting.append(asyncio.ensure_future(_once(fn, item)))
            if not waiting:
                return
            yield await waiting.pop(0)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _once(fn: Callable[[T], Awaitable[R]], item: T) -> R:
    return await fn(item)


async def upload(pieces: Iterable[bytes], progress: Callable[[int], Any] | None) -> AsyncIterator[bytes]:
    """Yields the pieces of a request's body, and reports the bytes so far."""
    sent = 0
    for piece in pieces:
        yield piece
        sent += len(piece)
        if progress is not None:
            progress(sent)


async def in_thread(fn: Callable[..., R], *args: Any) -> R:
    """Runs a blocking function in a thread."""
    return await asyncio.to_thread(fn, *args)


def pieces(source: BinaryIO) -> Iterator[bytes]:
    """Returns the content of an open file in pieces of at most 1 MiB."""
    while piece := source.read(1 << 20):
        yield piece
