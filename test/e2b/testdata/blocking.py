"""E2B's asynchronous classes behind the synchronous interface, so that one program has both: all that
can be awaited is awaited on a loop of a thread."""
import asyncio
import inspect
import threading

import e2b

_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


async def _call(f, a, kw):
    r = f(*a, **kw)  # on the loop: some make tasks
    return await r if inspect.isawaitable(r) else r


def _await(f, *a, **kw):
    return asyncio.run_coroutine_threadsafe(_call(f, a, kw), _loop).result()


def _pieces(it):
    while True:
        try:
            yield _await(it.__anext__)
        except StopAsyncIteration:
            return


def _wrap(v):
    if isinstance(v, list):
        return [_wrap(x) for x in v]
    if hasattr(v, "__anext__"):
        return _pieces(v)
    if type(v).__module__.startswith("e2b.") and ("_async" in type(v).__module__ or type(v).__name__.startswith("Async")):
        return Blocking(v)
    return v


class Blocking:
    def __init__(self, it):
        self._it = it

    def __call__(self, *a, **kw):
        return _wrap(self._it(*a, **kw))

    def __getattr__(self, name):
        v = getattr(self._it, name)
        if inspect.isroutine(v) or hasattr(v, "func") or type(v).__name__ == "function":
            return lambda *a, **kw: _wrap(_await(v, *a, **kw))
        return _wrap(v)


Sandbox = Blocking(e2b.AsyncSandbox)
Volume = Blocking(getattr(e2b, "AsyncVolume", None))
Secret = Blocking(getattr(e2b, "AsyncSecret", None))
