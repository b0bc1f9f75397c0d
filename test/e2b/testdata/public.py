"""Lists the public methods of E2B's Python package, as docs/use/e2b.md names them, one a line."""
import inspect

import e2b
from e2b.sandbox_async.commands.command import Commands as AsyncCommands
from e2b.sandbox_async.commands.pty import Pty as AsyncPty
from e2b.sandbox_async.filesystem.filesystem import Filesystem as AsyncFilesystem
from e2b.sandbox_async.git import Git as AsyncGit
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.git import Git
from e2b.template.main import TemplateBuilder

classes = {"commands": (Commands, AsyncCommands), "pty": (Pty, AsyncPty), "files": (Filesystem, AsyncFilesystem),
           "git": (Git, AsyncGit), "Template": (e2b.Template, e2b.AsyncTemplate, TemplateBuilder)}
for name in ("Sandbox", "CommandHandle", "WatchHandle", "SandboxPaginator", "SnapshotPaginator", "SecretPaginator",
             "CommandInputHandle", "Volume", "Secret"):
    classes[name] = (getattr(e2b, name, None), getattr(e2b, "Async" + name, None))
parts = ("commands", "files", "pty", "git", "connection_config")
constants = ("default_mcp_template", "default_sandbox_timeout", "default_template", "mcp_port")
names = set()
for name, both in classes.items():
    for c in both:
        for n in dir(c) if c else ():
            if not n.startswith("_") and n not in parts + constants:
                names.add(f"{name}.{n}")
print("\n".join(sorted(names)))
