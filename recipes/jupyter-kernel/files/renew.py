"""Runs in the kernel: before the first execution in a clone it renews the random state of the snapshot."""


def _forkd_renew():
    import os
    import sys

    def boot_id():
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read()

    boot = boot_id()

    def renew():
        nonlocal boot
        now = boot_id()
        if now == boot:
            return
        boot = now
        if "random" in sys.modules:
            sys.modules["random"].seed()
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        if "_ssl" in sys.modules:
            sys.modules["_ssl"].RAND_add(os.urandom(32), 32.0)
        if "bson.objectid" in sys.modules:
            sys.modules["bson.objectid"].ObjectId._pid = None

    get_ipython().events.register("pre_execute", renew)  # noqa: F821 -- a name of IPython's


_forkd_renew()
del _forkd_renew
