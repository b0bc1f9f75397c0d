"""What the programs of this folder share: what has to fail, what has to come, and how their parts are run."""
import os
import sys
import time
import traceback


def fails(kind, f, *args, says="", **kw):
    """f has to fail with an error of that kind, which says so."""
    try:
        got = f(*args, **kw)
    except kind as e:
        assert says in str(e), f"{e!s} does not say {says!r}"
        return e
    raise AssertionError(f"{f} gave {got!r}, want {kind}")


def until(what, f, limit=150):
    end = time.time() + limit
    while not f():
        assert time.time() < end, what
        time.sleep(0.1)


def run(s, parts):
    """Runs the parts of a program with a sandbox, and returns which failed. E2B_TEST_ONLY names some of them."""
    failed = []
    only = os.environ.get("E2B_TEST_ONLY", "").split(",")
    for f in parts:
        if only != [""] and f.__name__ not in only:
            continue
        began = time.time()
        try:
            f(s)
            print(f"ok   {f.__name__} {time.time() - began:.2f} s", flush=True)
        except BaseException:
            failed.append(f.__name__)
            print(f"FAIL {f.__name__} {time.time() - began:.2f} s", flush=True)
            traceback.print_exc(file=sys.stdout)
    return failed


def leave(failed=()):
    """Ends the program, and not the interpreter: threads of the package may abort there (seen with 2.55.0), and the
    loop of blocking.py runs in one."""
    sys.stdout.flush()
    os._exit(1 if failed else 0)
