"""A Python function over many items, one fork each."""
from __future__ import annotations

import functools
import importlib
import io
import os
import pickle
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
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
def _forkd_call(path):
    import os, pickle, sys, traceback
    if os.path.exists(path + '.zip'): sys.path.insert(0, path + '.zip')
    try:
        with open(path, 'rb') as f:
            version = pickle.load(f)
            if version not in (None, sys.version_info[:2]):
                r = ('version', sys.version_info[:2])
            else:
                fn, item = pickle.load(f)
                r = ('value', fn(item))
    except ModuleNotFoundError as e:
        r = ('module', e.name) if (e.name or '').startswith('cloudpickle') else ('error', traceback.format_exc())
    except BaseException:
        r = ('error', traceback.format_exc())
    try: out = pickle.dumps(r)
    except Exception: out = pickle.dumps(('error', traceback.format_exc()))
    with open(path, 'wb') as f: f.write(out)
_forkd_call({path!r})
"""


def map(fn: Callable[[T], R], items: Iterable[T], snapshot: str, *, client: Forkd | None = None,
        concurrency: int = 8, timeout: float | None = None, errors: str = "raise", **fork: Any) -> Iterator[R | ForkdError]:
    """Calls fn with each item, in a fork of its own, and yields the results in the order of the items.

    The snapshot needs a warmed Python with the modules that fn uses: they are imported already. At most
    ``concurrency`` children run at a time, and items are taken as children end, so the memory of this
    process does not grow with their number. ``timeout`` in seconds limits each call. ``errors`` is
    ``raise``, or ``return`` to yield an error (EvalError or another ForkdError) in the place of its result.
    With cloudpickle installed here, fn may be any function, and the guest needs the same minor version of
    Python. Without it, fn must be a function of a module that the guest has. Results come by pickle, which
    can run code on this host: map functions that you trust.
    """
    _check(errors, concurrency)
    own = client is None
    forkd = client or Forkd()

    def one(item: T) -> R | ForkdError:
        try:
            with forkd.snapshot(snapshot).fork(**{"ttl": 3600, **fork}) as sandbox:
                value: R = _call(sandbox, _packed(fn, item), timeout)
                return value
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
                value: R = await _call_async(sandbox, _packed(fn, item), timeout)
                return value
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
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ImportError:
        cloudpickle = None
    if cloudpickle is not None:
        return pickle.dumps(sys.version_info[:2]) + _dumped(cloudpickle.dumps, fn, item)
    name = getattr(fn, "__module__", None)
    if name == "__main__" or "<" in getattr(fn, "__qualname__", "<"):
        raise InvalidRequestError(
            f"{getattr(fn, '__qualname__', fn)!r} is a function of this program, which pickle cannot send",
            hint="install cloudpickle (pip install 'forkd[map]')")
    return pickle.dumps(None) + _dumped(pickle.dumps, fn, item)


def _dumped(dumps: Callable[[Any], bytes], fn: Callable[[Any], Any], item: Any) -> bytes:
    try:
        return bytes(dumps((fn, item)))
    except Exception as e:  # objects raise errors of any type
        raise InvalidRequestError(f"an item of type {type(item).__name__}, or the function, cannot be pickled: {e}",
                                  hint="give plain data, and open files and connections in the function") from e


def _loaded(data: bytes) -> tuple[str, Any]:
    try:
        kind, value = pickle.loads(data)
        return str(kind), value
    except Exception as e:  # the result's type may be missing here
        raise EvalError(f"the result cannot be unpickled here: {type(e).__name__}: {e}") from e


def _path() -> str:
    return f"/tmp/.forkd-call-{os.urandom(8).hex()}"


def _call(sandbox: Sandbox, packed: bytes, timeout: float | None) -> Any:
    path = _path()
    for attempt in range(2):
        sandbox.files.write(path, packed)
        sandbox.eval(_CALL.format(path=path), timeout=timeout)
        kind, value = _loaded(sandbox.files.read(path))
        if kind != "module" or attempt:
            return _result(kind, value)
        sandbox.files.write(path + ".zip", _library())
    return None


async def _call_async(sandbox: AsyncSandbox, packed: bytes, timeout: float | None) -> Any:
    path = _path()
    for attempt in range(2):
        await sandbox.files.write(path, packed)
        await sandbox.eval(_CALL.format(path=path), timeout=timeout)
        kind, value = _loaded(await sandbox.files.read(path))
        if kind != "module" or attempt:
            return _result(kind, value)
        await sandbox.files.write(path + ".zip", _library())
    return None


def _result(kind: str, value: Any) -> Any:
    """Returns the value of a call, or raises its error."""
    if kind == "value":
        return value
    if kind == "version":
        raise InvalidRequestError(
            f"the guest has Python {value[0]}.{value[1]}, and this is {sys.version_info[0]}.{sys.version_info[1]}: "
            "a function cannot be sent between them",
            hint="run the same minor version here, or map a function of a module that the guest has")
    raise EvalError(f"ModuleNotFoundError: No module named {value!r}" if kind == "module" else str(value))


@functools.lru_cache(maxsize=1)
def _library() -> bytes:
    """Returns cloudpickle as an archive, for guests without it."""
    package = Path(importlib.import_module("cloudpickle").__file__ or "").parent
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for source in sorted(package.glob("*.py")):
            z.write(source, "cloudpickle/" + source.name)
    return out.getvalue()


__all__ = ["map", "map_async"]
