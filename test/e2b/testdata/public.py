"""Lists the public methods and properties of E2B's Python packages, as testdata/methods.yaml names them. A line is
`sync NAME` or `async NAME`. Classes are found by the packages' own lists of names, so a new class is listed too."""
import enum
import inspect

import e2b
import e2b_code_interpreter
from e2b.sandbox_async.commands.command import Commands as AsyncCommands
from e2b.sandbox_async.commands.pty import Pty as AsyncPty
from e2b.sandbox_async.filesystem.filesystem import Filesystem as AsyncFilesystem
from e2b.sandbox_async.git import Git as AsyncGit
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.git import Git
from e2b.template.main import TemplateBase, TemplateBuilder, TemplateFinal

PARTS = ("commands", "files", "pty", "git", "connection_config")  # of a sandbox, listed as classes of their own
CONSTANTS = ("default_mcp_template", "default_sandbox_timeout", "default_template", "mcp_port")


def members(c):
    """The methods and properties that a class has by itself, and not as a str, bytes or dict."""
    builtin = {n for b in (str, bytes, dict) if issubclass(c, b) for n in dir(b)}
    for n in dir(c):
        static = inspect.getattr_static(c, n)
        if n.startswith("_") or n in PARTS + CONSTANTS or n in builtin:
            continue
        if isinstance(static, property) or callable(getattr(c, n)):
            yield n


def classes():
    yield from (("commands", Commands, "sync"), ("commands", AsyncCommands, "async"), ("pty", Pty, "sync"),
                ("pty", AsyncPty, "async"), ("files", Filesystem, "sync"), ("files", AsyncFilesystem, "async"),
                ("git", Git, "sync"), ("git", AsyncGit, "async"))
    for c in (TemplateBase, TemplateBuilder, TemplateFinal):
        yield from (("Template", c, "sync"), ("Template", c, "async"))
    for module in (e2b, e2b_code_interpreter):
        for name in module.__all__ if hasattr(module, "__all__") else dir(module):
            c = getattr(module, name)
            # NewType and aliases of types are no classes; errors and enums have no methods of their own.
            if not inspect.isclass(c) or issubclass(c, (BaseException, enum.Enum)) or c in (Git, TemplateBase):
                continue
            if name.startswith("Async"):
                yield name.removeprefix("Async"), c, "async"
            elif hasattr(module, "Async" + name):
                yield name, c, "sync"
            else:
                yield from ((name, c, "sync"), (name, c, "async"))


lines = {f"{half} {name}.{n}" for name, c, half in classes() for n in members(c)}
for module in (e2b, e2b_code_interpreter):
    for name, f in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("_"):
            lines |= {f"sync {name}", f"async {name}"}
print("\n".join(sorted(lines)))
