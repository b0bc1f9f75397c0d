"""A sandbox backend of LangChain's deepagents: a fork of a warm snapshot.

    with forkd.Forkd() as client, client.snapshot("py").fork() as sandbox:
        agent = create_deep_agent(model=..., backend=ForkdBackend(sandbox))

Files go by the native routes, with the rights of the guest's user.
"""
from __future__ import annotations

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

import forkd
from forkd.frameworks import os_error, run

__all__ = ["ForkdBackend"]


class ForkdBackend(BaseSandbox):
    """The files and the shell of one sandbox.

    ``timeout`` is the default limit of a command in seconds. The caller ends the sandbox.
    """

    def __init__(self, sandbox: forkd.Sandbox, *, timeout: int | None = 30 * 60, cwd: str | None = None) -> None:
        self.sandbox = sandbox
        self._timeout = timeout
        self._cwd = cwd

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. 0 means without a limit; a command beyond its limit has the exit code 124."""
        limit = self._timeout if timeout is None else timeout
        # One stream, in the order in which the command wrote.
        got = run(self.sandbox, ["sh", "-c", "exec 2>&1\n" + command], timeout=limit or None, cwd=self._cwd)
        output = got.stdout + got.stderr
        if got.timed_out:
            output += f"\nThe command exceeded its limit of {limit} s and was killed."
        if got.killed_by:
            output += f"\n{got.killed_by}"
        return ExecuteResponse(output=output, exit_code=got.exit_code, truncated=got.dropped_bytes > 0)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._try(path, self._upload, content)[1])
                for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        done = []
        for path in paths:
            content, error = self._try(path, self._download)
            done.append(FileDownloadResponse(path=path, content=content, error=error))
        return done

    def _upload(self, path: str, content: bytes) -> None:
        self.sandbox.files.write(path, content)

    def _download(self, path: str) -> bytes:
        return self.sandbox.files.read(path)

    def _try(self, path: str, do, *args):
        """Returns a result, or the framework's word for the error of one file."""
        if not path.startswith("/") or "\0" in path:
            return None, "invalid_path"
        try:
            return do(path, *args), None
        except forkd.ForkdError as e:
            translated = os_error(e, path)
            if translated is None and not isinstance(e, (forkd.InvalidRequestError, forkd.TooLargeError)):
                raise  # the sandbox, not the file
            return None, _WORDS.get(type(translated), e.message)


_WORDS = {FileNotFoundError: "file_not_found", PermissionError: "permission_denied",
          IsADirectoryError: "is_directory", NotADirectoryError: "invalid_path"}
