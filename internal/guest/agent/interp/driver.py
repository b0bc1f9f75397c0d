# The inside of a warmed Python interpreter. It is run with -c by the agent and
# speaks length-prefixed JSON over two inherited pipes: requests come on fd 3,
# answers leave on fd 4. fds 1 and 2 are pipes of the agent too, so that output
# of subprocesses is seen as well. Nothing here may wake up by itself: an idle
# clone must not touch memory.
import sys


def _driver():
    import ast
    import gc
    import json
    import linecache
    import os
    import signal
    import struct
    import traceback
    import types

    IN, OUT = 3, 4
    # User code's subprocesses must not hold these.
    os.set_inheritable(IN, False)
    os.set_inheritable(OUT, False)

    # Code runs in a main module of its own; this one must stay for the driver.
    driver_main = sys.modules["__main__"]
    main = types.ModuleType("__main__")
    ns = main.__dict__
    ns["__builtins__"] = driver_main.__dict__["__builtins__"]
    sys.modules["__main__"] = main

    hooks = []
    guest = types.ModuleType("forkd_guest", "What code in a forkd guest can ask for.")

    def on_fork(func):
        """Call func(info) in every clone, before it is reported as running."""
        hooks.append(func)
        return func

    found = None  # generators, as long as nothing ran since they were looked for
    walk = False

    def reseed_globals(on=True):
        """Reseed, in every clone, the generators that modules' globals lead to.

        These are random.Random and numpy's Generator, RandomState and
        BitGenerator, as globals of any module, or in lists, tuples, sets, dicts
        and attributes of instances that globals name. A generator that was given
        a seed on purpose gets another as well.
        """
        nonlocal walk, found
        walk, found = bool(on), None

    guest.on_fork = on_fork
    guest.reseed_globals = reseed_globals
    sys.modules["forkd_guest"] = guest

    running = False

    def on_interrupt(signum, frame):
        if running:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)

    def receive():
        """The next request. There is one at a time, so nothing of another comes with it."""
        parts, have, want = [], 0, 4
        while have < want:
            b = os.read(IN, 1 << 20)
            if not b:
                os._exit(0)  # the agent is gone
            parts.append(b)
            have += len(b)
            if want == 4 and have >= 4:
                parts = [b"".join(parts)]
                want += struct.unpack_from(">I", parts[0])[0]
        return json.loads(b"".join(parts)[4:])

    def send(answer):
        b = json.dumps(answer).encode("utf-8", "backslashreplace")
        b = memoryview(struct.pack(">I", len(b)) + b)
        while b:
            b = b[os.write(OUT, b):]

    def clip(s, limit):
        return s if len(s) <= limit else s[:limit] + "… (%d characters more)" % (len(s) - limit)

    def flush():
        for f in (sys.stdout, sys.stderr):
            try:
                f.flush()
            except Exception:
                pass

    def trace(e):
        try:
            te = traceback.TracebackException.from_exception(e)
            # The first frame is this driver's, and so is the last when interrupted.
            frames = [f for f in te.stack if f.name not in ("evaluate", "on_interrupt") or f.filename != "<string>"]
            te.stack[:] = frames
            return clip("".join(te.format()), 1 << 18)
        except BaseException:
            return type(e).__name__ + " (its traceback cannot be shown)\n"

    def summary(e):
        try:
            return clip(traceback.format_exception_only(type(e), e)[-1].strip(), 1 << 14)
        except BaseException:
            return type(e).__name__

    def exited(e):
        """What `python -c` would exit with, having said what it would say."""
        renew_stdin()
        try:
            c = e.code
            if c is None:
                return 0
            if isinstance(c, int):
                # As the C code has it: an int that is no long counts as -1.
                return int.__and__(c, 255) if -1 << 63 <= c < 1 << 63 else 255
            print(clip(str(c), 1 << 14), file=sys.stderr)
        except BaseException:
            pass
        flush()
        return 1

    def renew_stdin():
        """exit() closes sys.stdin, which the next evaluation may want; its descriptor stays."""
        try:
            if sys.stdin is None or sys.stdin.closed:
                sys.stdin = open(0, closefd=False)
        except Exception:
            pass

    sys.stdin = open(0, closefd=False)

    count = 0

    def acts_alone():
        """Whether code may run here without a request: of a clone's hook, a signal or a timer."""
        if hooks:
            return True
        if any(getitimer(t)[0] for t in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
            return True
        return any(callable(getsignal(s)) for s in signals)

    # Those of signal make an enum of each answer, which took half of a short evaluation's time.
    from _signal import getitimer, getsignal
    signals = [int(s) for s in signal.valid_signals() if s != signal.SIGINT]

    def lend(env):
        """Sets the environment of one evaluation. The result takes it away again.

        Variables that the code has changed meanwhile are the code's, and stay.
        """
        if not env:
            return lambda: None
        # Code may have put anything in the place of os.environ, also while it ran.
        environ, before = os.environ, {}
        try:
            for name, value in env.items():
                before[name] = environ.get(name)
                environ[name] = value
        except BaseException:
            pass

        def take():
            for name, old in before.items():
                try:
                    if environ.get(name) != env[name]:
                        continue
                    if old is None:
                        del environ[name]
                    else:
                        environ[name] = old
                except BaseException:
                    pass

        return take

    def evaluate(req):
        nonlocal count, running, found
        if req["seed"]:  # a clone's, which has to be there before any code of the clone
            failed = reseed(req["seed"])["error"]
            if failed:
                return {"seed_error": failed}
        count += 1
        found = None
        name = "<eval %d>" % count
        code = req["code"]
        answer = {"result": "", "error": "", "traceback": "", "exit_code": 0}
        value = None
        take = lend(req.get("env"))
        try:
            try:
                running = True
                # Lets tracebacks show the code's own lines.
                linecache.cache[name] = (len(code), None, code.splitlines(True), name)
                tree = ast.parse(code, name)
                last = None
                if tree.body and isinstance(tree.body[-1], ast.Expr):
                    last = ast.Expression(tree.body.pop().value)
                if tree.body:
                    exec(compile(tree, name, "exec"), ns)
                if last is not None:
                    value = eval(compile(last, name, "eval"), ns)
                if value is not None:
                    ns["_"] = value
                    answer["result"] = clip(repr(value), req["max_result"])
            finally:
                try:
                    flush()  # also what was printed before an exception or an exit
                finally:
                    running = False
        except SystemExit as e:
            answer["exit_code"] = exited(e)
        except BaseException as e:
            answer["exit_code"] = 1
            answer["error"] = summary(e)
            answer["traceback"] = trace(e)
        take()
        linecache.cache.pop("<eval %d>" % (count - 100), None)
        return answer

    def notable():
        out = {}
        for name in ("numpy", "scipy", "pandas", "torch", "tensorflow", "jax", "sklearn", "matplotlib"):
            m = sys.modules.get(name)
            v = getattr(m, "__version__", None)
            if isinstance(v, str):
                out[name] = clip(v, 100)
        return out

    def generators():
        """What reseed_globals finds. It may take long and touches what it looks at:
        the last thing before a snapshot looks, so that clones need not."""
        random, np = sys.modules.get("random"), sys.modules.get("numpy.random")
        kinds = (random.Random,) if random else ()
        if np is not None:
            kinds += (np.Generator, np.RandomState, np.BitGenerator)
        if not kinds:
            return []
        out, seen, todo = [], set(), []
        skip = getattr(random, "_inst", None)

        def look(v, depth):
            t = type(v)  # not isinstance, which may run code of the object's own
            if id(v) in seen or depth >= 4 or len(seen) > 1 << 20:
                return
            if issubclass(t, kinds):
                seen.add(id(v))
                if v is not skip:
                    out.append(v)
            elif t in (list, tuple, set, frozenset, dict):
                seen.add(id(v))
                todo.append((v.values() if t is dict else v, depth + 1))
            elif t.__dictoffset__ != 0 and not issubclass(t, (type, types.ModuleType, types.FunctionType)):
                seen.add(id(v))
                todo.append((object.__getattribute__(v, "__dict__").values(), depth + 1))

        spaces = [ns] + [m.__dict__ for m in list(sys.modules.values()) if type(m) is types.ModuleType]
        for space in spaces:
            todo.append((space.values(), 0))
            while todo:
                values, depth = todo.pop()
                try:
                    values = list(values)
                except Exception:  # another thread changes it
                    continue
                for v in values:
                    try:
                        look(v, depth)
                    except Exception:  # no attributes after all
                        pass
        return out

    def reseed_one(g, seed):
        if isinstance(g, sys.modules["random"].Random):
            g.seed(seed)
            return
        np = sys.modules["numpy.random"]
        words = list(struct.unpack(">%dI" % (len(seed) // 4), seed))
        if isinstance(g, np.RandomState):
            try:
                g.seed(words)  # also drops a kept half of a pair
                return
            except TypeError:
                g = g._bit_generator
        bits = g.bit_generator if isinstance(g, np.Generator) else g
        fresh = type(bits)(np.SeedSequence(words))
        try:
            bits.__setstate__(fresh.__getstate__())  # with what spawn() goes by, in newer ones
        except Exception:
            bits.state = fresh.state

    def reseed(given):
        os.environ.update(given["env"])
        seed = bytes.fromhex(given["entropy"])
        words = struct.unpack(">%dI" % (len(seed) // 4), seed[:len(seed) // 4 * 4])
        done, errors = [], []

        def attempt(what, func):
            try:
                if func() is not False:
                    done.append(what)
            except BaseException as e:
                errors.append("%s: %s" % (what, summary(e)))

        def seed_random():
            m = sys.modules.get("random")
            if m is None:
                return False
            m.seed(seed)

        def seed_numpy():
            m = sys.modules.get("numpy.random")
            if m is None:
                return False
            m.seed(list(words))

        def seed_openssl():
            m = sys.modules.get("_ssl")
            if m is None:
                return False
            m.RAND_add(seed, float(len(seed)))

        def seed_torch():
            m = sys.modules.get("torch")
            if m is None:
                return False
            m.manual_seed(int.from_bytes(seed[:8], "big") >> 1)

        def renew_tempfile():
            m = sys.modules.get("tempfile")
            if m is None or getattr(m, "_name_sequence", None) is None:
                return False
            m._name_sequence = None

        def renew_bson():
            m = sys.modules.get("bson.objectid")
            if m is None:
                return False
            m.ObjectId._pid = None  # the next id takes new random bytes, as in another process

        attempt("random", seed_random)
        attempt("numpy.random", seed_numpy)
        attempt("openssl", seed_openssl)
        attempt("torch", seed_torch)
        def seed_globals():
            if not walk or not ("random" in sys.modules or "numpy.random" in sys.modules):
                return False
            import hashlib
            all = generators() if found is None else found
            for i, g in enumerate(all):
                reseed_one(g, hashlib.sha256(seed + b"global" + struct.pack(">I", i)).digest())
            return len(all) > 0

        attempt("tempfile", renew_tempfile)
        attempt("bson", renew_bson)
        attempt("globals", seed_globals)
        for i, hook in enumerate(hooks):
            attempt("hook %d" % i, lambda: hook(dict(given["info"])) and None)
        flush()
        return {"reseeded": done, "error": "; ".join(errors)}

    def quiesce(req):
        nonlocal found
        flush()
        found = generators() if walk else None
        gc.collect()
        gc.freeze()  # what is warm is not looked at, hence not written, by later collections
        return {}

    ops = {
        "eval": evaluate,
        "reseed": lambda req: reseed(req["seed"]),
        "quiesce": quiesce,
        "about": lambda req: {},
    }
    send({"version": sys.version.split()[0], "modules": notable()})
    while True:
        req = receive()
        answer = ops[req["op"]](req)
        if req["op"] != "reseed":
            answer["modules"], answer["acts_alone"] = notable(), acts_alone()
        send(answer)


_driver()
