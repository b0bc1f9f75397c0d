import os, sys
try:
    from importlib.metadata import version
    from e2b import Sandbox
except ImportError:
    sys.exit(77)
print(version("e2b"), flush=True)
s = Sandbox.create(os.environ["FORKD_TEMPLATE"], timeout=120)
try:
    said = s.commands.run("echo $((40+2))").stdout
    assert said == "42\n", f"a command says {said!r}, want 42"
    s.files.write("/tmp/forkd-check", "kept")
    said = s.files.read("/tmp/forkd-check")
    assert said == "kept", f"a file says {said!r}"
    assert s.is_running(), "it does not run"
finally:
    s.kill()
