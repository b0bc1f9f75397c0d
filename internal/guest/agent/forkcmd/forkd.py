"""Fork the machine that this program runs in.

    import forkd
    i = forkd.fork(3)
    if i:                           # 1, 2 or 3, each in a machine of its own
        forkd.exit(0, b"result")
    for end in forkd.wait():        # in the original
        print(end.index, end.code, end.result)

fork() copies the whole machine: this process and every other one go on in each
child. The daemon has to allow it (forkd fork --guest-fork).
"""
import collections
import json
import os
import socket as _socket
import sys
import time as _time

__all__ = ["fork", "wait", "wait_any", "exit", "children", "ForkError", "Child", "Ended"]

_SOCKET = "/run/forkd/fork.sock"
_MAX_RESULT = 1 << 20

Child = collections.namedtuple("Child", "index id error")
Ended = collections.namedtuple("Ended", "index id status code reason result")

#: Children of this process's last fork(); empty in a child.
children = []

_waited_for = []  # ids of children that wait() has not returned yet
_collected = []   # ends of a wait() that timed out


class ForkError(OSError):
    """A call that came to nothing; code says why: denied, limit, busy, failed, interrupted, ..."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code

    def __str__(self):
        return "%s: %s" % (self.code, self.args[0])




def _call(request, result=b""):
    if result:
        request["bytes"] = len(result)
    with _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM) as s:
        try:
            s.connect(_SOCKET)
            s.sendall(json.dumps(request).encode() + b"\n" + result)
        except OSError as e:
            raise ForkError("unavailable", "call the agent: %s" % e) from None
        with s.makefile("rb") as f:
            line = f.readline(1 << 20)
            if not line.endswith(b"\n"):
                raise ForkError("unavailable", "the agent ended the connection")
            answer = json.loads(line)
            n = answer.get("bytes", 0)
            left = f.read(n)
            if len(left) != n:
                raise ForkError("unavailable", "the agent ended the connection")
        if answer.get("error"):
            raise ForkError(answer["error"].get("code", ""), answer["error"].get("message", ""))
        if answer.get("ended"):
            s.sendall(b"+")  # from here on it is ours alone
        return answer, left


def _reseed():
    """Give generators that were copied a state of their own."""
    m = sys.modules.get("random")
    if m is not None:
        m.seed(os.urandom(32))
    m = sys.modules.get("numpy.random")
    if m is not None:
        m.seed(list(memoryview(os.urandom(32)).cast("I")))
    m = sys.modules.get("_ssl")
    if m is not None:
        m.RAND_add(os.urandom(32), 32.0)
    m = sys.modules.get("torch")
    if m is not None:
        m.manual_seed(int.from_bytes(os.urandom(8), "big") >> 1)
    m = sys.modules.get("tempfile")
    if m is not None:
        m._name_sequence = None


def _flush():
    for f in (sys.stdout, sys.stderr):
        try:
            f.flush()
        except Exception:
            pass


def fork(n=1):
    """Fork this machine into n children. Return 0 in the original and 1 to n in the children.

    In the original, forkd.children then tells whom it made: a child that could
    not be made has no id and an error. Raise ForkError if none was made.
    """
    _flush()  # or each child would print what is still in the buffers
    answer, _ = _call({"op": "fork", "n": n})
    index = answer["index"]
    if index:
        _became(answer)
        return index
    children[:] = [Child(c["index"], c.get("id", ""), c.get("error", "")) for c in answer.get("children", [])]
    _waited_for.extend(c.id for c in children if c.id)
    return 0


def _became(answer):
    del children[:], _waited_for[:], _collected[:]
    os.environ["FORKD_INDEX"] = str(answer["index"])
    os.environ["FORKD_SANDBOX_ID"] = answer.get("id", "")
    os.environ["FORKD_PARENT"] = answer.get("parent", "")
    _reseed()


def wait_any(timeout=None, ids=None):
    """Return the end of one child of this process (or of ids), or None when there is none left.

    Raise TimeoutError when none has ended within timeout seconds.
    """
    ids = list(_waited_for if ids is None else ids)[:1000]
    if not ids:
        return None
    request = {"op": "wait", "ids": ids}
    if timeout is not None:
        request["timeout_ms"] = max(1, int(timeout * 1000))
    try:
        answer, result = _call(request)
    except ForkError as e:
        if e.code == "timeout":
            raise TimeoutError(e.args[0]) from None
        if e.code == "no_children":
            del _waited_for[:]
            return None
        raise
    e = answer["ended"]
    if e["id"] in _waited_for:
        _waited_for.remove(e["id"])
    return Ended(e["index"], e["id"], e["status"], e["code"], e.get("reason", ""), result)


def wait(timeout=None):
    """Return the ends of all children of this process, by index, when all have ended.

    Raise TimeoutError when some have not within timeout seconds; what has been
    collected by then is returned by the next wait().
    """
    deadline = None if timeout is None else _time.monotonic() + timeout
    while True:
        left = None if deadline is None else max(0.001, deadline - _time.monotonic())
        end = wait_any(left)
        if end is None:
            break
        _collected.append(end)
    ends = sorted(_collected, key=lambda e: (e.index, e.id))
    del _collected[:]
    return ends


def exit(code=0, result=b""):
    """End this machine, which is a child, and leave code and result (bytes or str) to its parent."""
    if isinstance(result, str):
        result = result.encode()
    result = bytes(result)
    if len(result) > _MAX_RESULT:
        raise ValueError("the result is %d bytes, want at most %d" % (len(result), _MAX_RESULT))
    _flush()
    _call({"op": "exit", "code": code}, result)
    _time.sleep(60)  # the machine ends beneath us
    os._exit(code)
