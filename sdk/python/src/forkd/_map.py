"""A Python function over many items, one fork each."""
from __future__ import annotations

import os
import pickle
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

from . import _aio, _io
from ._async.client import AsyncForkd
from ._async.sandbox import AsyncSandbox
from ._base import EvalError, ForkdError
from ._sync.client import Forkd
from ._sync.sandbox import Sandbox
from .errors import InvalidRequestError

T = TypeVar("T")
R = TypeVar("R")

# Runs in the warmed interpreter of a child: reads the call, and writes its result to a file.
_CALL = """
import pickle as _p
with open({path!r}, 'rb') as _f: _fn, _item = _p.load(_f)
try: _r = (True, _fn(_item))
except BaseException as _e:
    import traceback as _t
    _r = (False, _t.format_exc())
with open({path!r}, 'wb') as _f: _p.dump(_r, _f)
"""


def map(fn: Callable[[T], R], items: Iterable[T], snapshot: str, *, client: Forkd | None = None,
        concurrency: int = 8, timeout: float | None = None, errors: str = "raise", **fork: Any) -> Iterator[R | ForkdError]:
    """Calls fn with each item, in a fork of its own, and yields the results in the order of the items.

    The snapshot needs a warmed Python with the modules that fn uses: they are imported already. At most
    ``concurrency`` children run at a time, and items are taken as children end, so the memory of this
    process does not grow with their number. ``timeout`` in seconds limits each call. ``errors`` is
    ``raise``, or ``return`` to yield an error (EvalError or another ForkdError) in the place of its result.
    Functions are sent by cloudpickle if it is installed, in both places, and else by pickle: then fn must be
    a function of a module that the guest has. Results come by pickle: map code that you trust.
    """
    _check(errors, concurrency)
    own = client is None
    forkd = client or Forkd()

    def one(item: T) -> R | ForkdError:
        try:
            with forkd.snapshot(snapshot).fork(**{"ttl": 3600, **fork}) as sandbox:
                return _result(_call(sandbox, _packed(fn, item), timeout))
        except ForkdError as e:
            if errors == "raise":
                raise
            return e

    try:
        yield from _io.in_order(one, items, concurrency)
    finally:
        if own:
            forkd.close()


async def map_async(fn: Callable[[T], R], items: Iterable[T], snapshot: str, *, client: AsyncForkd | None = None,
                    concurrency: int = 8, timeout: float | None = None, errors: str = "raise",
                    **fork: Any) -> AsyncIterator[R | ForkdError]:
    """Is map() for asynchronous programs."""
    _check(errors, concurrency)
    own = client is None
    forkd = client or AsyncForkd()

    async def one(item: T) -> R | ForkdError:
        try:
            async with await forkd.snapshot(snapshot).fork(**{"ttl": 3600, **fork}) as sandbox:
                return _result(await _call_async(sandbox, _packed(fn, item), timeout))
        except ForkdError as e:
            if errors == "raise":
                raise
            return e

    try:
        async for result in _aio.in_order(one, items, concurrency):
            yield result
    finally:
        if own:
            await forkd.aclose()


def _check(errors: str, concurrency: int) -> None:
    if errors not in ("raise", "return"):
        raise ValueError(f"errors={errors!r}: want 'raise' or 'return'")
    if concurrency < 1:
        raise ValueError(f"concurrency={concurrency}: want at least 1")


def _packed(fn: Callable[[Any], Any], item: Any) -> bytes:
    """Returns a call as bytes for the guest."""
    try:
        import cloudpickle
        return bytes(cloudpickle.dumps((fn, item)))
    except ImportError:
        pass
    name = getattr(fn, "__module__", None)
    if name == "__main__" or "<" in getattr(fn, "__qualname__", "<"):
        raise InvalidRequestError(
            f"{getattr(fn, '__qualname__', fn)!r} is a function of this program, which pickle cannot send",
            hint="install cloudpickle here and in the image (pip install 'forkd[map]')")
    return pickle.dumps((fn, item))


def _path() -> str:
    return f"/tmp/.forkd-call-{os.urandom(8).hex()}"


def _call(sandbox: Sandbox, packed: bytes, timeout: float | None) -> bytes:
    path = _path()
    sandbox.files.write(path, packed)
    sandbox.eval(_CALL.format(path=path), timeout=timeout)
    return sandbox.files.read(path)


async def _call_async(sandbox: AsyncSandbox, packed: bytes, timeout: float | None) -> bytes:
    path = _path()
    await sandbox.files.write(path, packed)
    await sandbox.eval(_CALL.format(path=path), timeout=timeout)
    return await sandbox.files.read(path)


def _result(data: bytes) -> Any:
    ok, value = pickle.loads(data)
    if not ok:
        raise EvalError(str(value))
    return value


__all__ = ["map", "map_async"]
