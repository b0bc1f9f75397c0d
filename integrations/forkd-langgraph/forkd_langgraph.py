"""A LangGraph checkpointer whose every checkpoint is a branch of the thread's sandbox.

    saver = ForkdSaver(InMemorySaver(), snapshot="py")
    graph = builder.compile(checkpointer=saver)

    def node(state, config):
        sandbox = saver.sandbox(config)  # ask in every node: time travel may move the thread to another one
        sandbox.exec("make test")

Checkpoints live in another saver. Each carries the tag of a snapshot in its metadata (``forkd_snapshot``). A run
that goes on from an older checkpoint finds the files and the processes of that moment.

How it works. LangGraph writes checkpoints beside the next nodes (durability "async"), and reads them for
get_state too. So neither put nor get_tuple alone is the right moment. A node's call of ``sandbox`` names the
checkpoint on which the node runs: it waits until that checkpoint's branch exists, and if the sandbox has moved past
another line of history, it is put back first. Durability "exit" writes no checkpoint between nodes and is refused.
"""
from __future__ import annotations

import asyncio
import builtins
import secrets
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointTuple

import forkd

__all__ = ["ForkdSaver"]

#: Keys in a checkpoint's metadata: the tag of its snapshot, and the id of the sandbox at that time.
SNAPSHOT, SANDBOX = "forkd_snapshot", "forkd_sandbox"

#: Longest wait in seconds for a checkpoint that LangGraph writes in the background.
WAIT = 60


@dataclass
class _Thread:
    """Place of a thread's sandbox in its history."""

    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    sandbox: forkd.Sandbox | None = None
    line: list[tuple[str, str]] = field(default_factory=list)  # (namespace, checkpoint id) that led to this state
    tags: dict[str, str] = field(default_factory=dict)  # checkpoint id to tag

    def last(self, ns: str) -> str | None:
        """Returns the newest checkpoint of a graph on the sandbox's line."""
        return next((c for n, c in reversed(self.line) if n == ns), None)

    def back(self, ns: str, checkpoint: str) -> None:
        """Cuts the line behind a checkpoint."""
        at = (ns, checkpoint)
        self.line = self.line[:self.line.index(at) + 1] if at in self.line else [at]


class ForkdSaver(BaseCheckpointSaver):
    """Wraps another saver. ``snapshot`` is the tag that the sandboxes of new threads are forked from.

    ``options`` are those of Snapshot.fork, such as ``ttl`` (seconds) and ``network``. A thread goes on after its
    sandbox has ended: the next node gets a fork of the last checkpoint's branch.
    """

    def __init__(self, saver: BaseCheckpointSaver, *, snapshot: str, client: forkd.Forkd | None = None,
                 **options: Any) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver
        self.snapshot = snapshot
        self.client = client if client is not None else forkd.Forkd()
        self._options = options
        self._threads: dict[str, _Thread] = {}
        self._lock = threading.Lock()

    # For nodes.

    def sandbox(self, config: Any) -> forkd.Sandbox:
        """Returns the thread's sandbox in the state of the checkpoint on which the node runs.

        ``config`` is the node's RunnableConfig. Raises RuntimeError outside of a node, and with durability "exit".
        """
        thread_id, ns, checkpoint = _place(config)
        thread = self._thread(thread_id)
        with thread.changed:
            if thread.last(ns) != checkpoint:
                self._reach(thread, thread_id, ns, checkpoint)
            return self._running(thread, thread.tags[checkpoint])

    async def asandbox(self, config: Any) -> forkd.Sandbox:
        """Returns the same as sandbox, without blocking the event loop."""
        return await asyncio.to_thread(self.sandbox, config)

    def _reach(self, thread: _Thread, thread_id: str, ns: str, checkpoint: str) -> None:
        """Puts the sandbox to a checkpoint, which LangGraph may still be writing."""
        def known() -> bool:
            return thread.last(ns) == checkpoint or self._tag(thread, thread_id, ns, checkpoint) is not None
        if not known() and not thread.changed.wait_for(known, WAIT):
            raise RuntimeError(f"checkpoint {checkpoint} of thread {thread_id!r} was not written within {WAIT} s: "
                               "compile the graph with this checkpointer, and use durability 'sync' or 'async'")
        if thread.last(ns) != checkpoint:
            self._travel(thread, thread.tags[checkpoint])
            thread.back(ns, checkpoint)

    def _tag(self, thread: _Thread, thread_id: str, ns: str, checkpoint: str) -> str | None:
        """Returns a checkpoint's tag, from memory or from the saver."""
        if checkpoint not in thread.tags:
            found = self.saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ns,
                                                           "checkpoint_id": checkpoint}})
            tag = (found.metadata or {}).get(SNAPSHOT) if found else None
            if tag is None:
                return None
            thread.tags[checkpoint] = tag
            if thread.sandbox is None and found.metadata.get(SANDBOX):  # a new process takes over
                thread.sandbox = self.client.sandbox(found.metadata[SANDBOX])
        return thread.tags[checkpoint]

    def _running(self, thread: _Thread, tag: str) -> forkd.Sandbox:
        """Returns the sandbox. If it has ended, it is forked anew from a checkpoint's tag."""
        if thread.sandbox is not None:
            try:
                if thread.sandbox.info().status == "paused":
                    thread.sandbox.resume()
                return thread.sandbox
            except (forkd.NotFoundError, forkd.GuestGoneError):
                pass
        thread.sandbox = self.client.snapshot(tag).fork(**self._options)
        return thread.sandbox

    def _travel(self, thread: _Thread, tag: str) -> None:
        """Puts the sandbox back to a tag. If the tag is not in its ancestry, a fork of the tag takes its place."""
        old = thread.sandbox
        if old is None:
            return  # the next use forks it
        try:
            old.rollback(tag)
            return
        except (forkd.ConflictError, forkd.InvalidRequestError, forkd.NotFoundError, forkd.GuestGoneError):
            thread.sandbox = self.client.snapshot(tag).fork(**self._options)
        _end(old)

    def _thread(self, thread_id: str) -> _Thread:
        with self._lock:
            return self._threads.setdefault(thread_id, _Thread())

    # Writing.

    def _branch(self, config: Any, checkpoint: Checkpoint, metadata: Any) -> dict[str, Any]:
        """Makes the branch of a new checkpoint, and returns its metadata."""
        conf = config["configurable"]
        thread_id, ns, parent = str(conf["thread_id"]), conf.get("checkpoint_ns", ""), conf.get("checkpoint_id")
        thread = self._thread(thread_id)
        with thread.changed:
            travelled = parent is not None and thread.last(ns) != parent \
                and self._tag(thread, thread_id, ns, parent) is not None
            if travelled:  # a run goes on from an older checkpoint: it starts in that state
                self._travel(thread, thread.tags[parent])
                thread.back(ns, parent)
            if travelled:
                tag = thread.tags[parent]
            else:
                tag = self._capture(thread, parent)
            thread.tags[checkpoint["id"]] = tag
            thread.line.append((ns, checkpoint["id"]))
            sandbox = thread.sandbox.id if thread.sandbox is not None else ""
            thread.changed.notify_all()
        return {**metadata, SNAPSHOT: tag, SANDBOX: sandbox}

    def _capture(self, thread: _Thread, parent: str | None) -> str:
        if thread.sandbox is None:  # no node has used it yet
            return thread.tags.get(parent or "", self.snapshot)
        before = thread.tags.get(parent or "") or (thread.tags[thread.line[-1][1]] if thread.line else self.snapshot)
        try:
            return thread.sandbox.branch(0, tag=f"lg-{secrets.token_hex(8)}").tag
        except (forkd.NotFoundError, forkd.GuestGoneError):
            thread.sandbox = None  # it ended; its last state is that of the checkpoint before
            return before
        except forkd.ConflictError:
            if thread.sandbox.info().status != "paused":
                raise
            thread.sandbox.resume()
            return thread.sandbox.branch(0, tag=f"lg-{secrets.token_hex(8)}").tag

    def put(self, config: Any, checkpoint: Checkpoint, metadata: Any, new_versions: ChannelVersions) -> Any:
        return self.saver.put(config, checkpoint, self._branch(config, checkpoint, metadata), new_versions)

    async def aput(self, config: Any, checkpoint: Checkpoint, metadata: Any, new_versions: ChannelVersions) -> Any:
        metadata = await asyncio.to_thread(self._branch, config, checkpoint, metadata)
        return await self.saver.aput(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    async def aput_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str,
                          task_path: str = "") -> None:
        await self.saver.aput_writes(config, writes, task_id, task_path)

    # Reading changes no sandbox.

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        return self.saver.get_tuple(config)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return await self.saver.aget_tuple(config)

    def list(self, config: Any, *, filter: dict[str, Any] | None = None, before: Any = None,
             limit: int | None = None) -> Iterator[CheckpointTuple]:
        return self.saver.list(config, filter=filter, before=before, limit=limit)

    async def alist(self, config: Any, *, filter: dict[str, Any] | None = None, before: Any = None,
                    limit: int | None = None) -> AsyncIterator[CheckpointTuple]:
        async for found in self.saver.alist(config, filter=filter, before=before, limit=limit):
            yield found

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    @property
    def config_specs(self) -> builtins.list:
        return self.saver.config_specs

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        return await self.saver.aget_delta_channel_history(config=config, channels=channels)

    # Deleting and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread, ends its sandbox, and deletes the snapshots that no other thread uses."""
        tags = self._tags_of(self._of(thread_id))
        self._forget(thread_id)
        self.saver.delete_thread(thread_id)
        self._drop(tags)

    async def adelete_thread(self, thread_id: str) -> None:
        tags = self._tags_of([t async for t in self.saver.alist(_thread_config(thread_id))])
        await asyncio.to_thread(self._forget, thread_id)
        await self.saver.adelete_thread(thread_id)
        await self._adrop(tags)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of runs and their snapshots, if the wrapped saver can."""
        tags = self._tags_of(t for run in run_ids for t in self.saver.list(None, filter={"run_id": run}))
        self.saver.delete_for_runs(run_ids)
        self._drop(tags)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        tags = self._tags_of([t for run in run_ids async for t in self.saver.alist(None, filter={"run_id": run})])
        await self.saver.adelete_for_runs(run_ids)
        await self._adrop(tags)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread. The copy shares the snapshots; its next run gets a sandbox of its own."""
        try:
            self.saver.copy_thread(source_thread_id, target_thread_id)
        except NotImplementedError:
            for found in reversed(self._of(source_thread_id)):
                config = _copied(found, target_thread_id)
                config = self.saver.put(config, found.checkpoint, _without_sandbox(found.metadata),
                                        found.checkpoint["channel_versions"])
                for task, writes in _by_task(found):
                    self.saver.put_writes(config, writes, task)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        try:
            await self.saver.acopy_thread(source_thread_id, target_thread_id)
        except NotImplementedError:
            for found in reversed([t async for t in self.saver.alist(_thread_config(source_thread_id))]):
                config = await self.saver.aput(_copied(found, target_thread_id), found.checkpoint,
                                               _without_sandbox(found.metadata),
                                               found.checkpoint["channel_versions"])
                for task, writes in _by_task(found):
                    await self.saver.aput_writes(config, writes, task)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all checkpoints (``delete``), or all but the newest per namespace, with their snapshots."""
        for thread_id in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            found = self._of(thread_id)
            try:
                self.saver.prune([thread_id], strategy=strategy)
            except NotImplementedError:
                self.saver.delete_thread(thread_id)
                for kept in _newest(found):
                    config = self.saver.put(_copied(kept, thread_id, parent=False), kept.checkpoint, kept.metadata,
                                            kept.checkpoint["channel_versions"])
                    for task, writes in _by_task(kept):
                        self.saver.put_writes(config, writes, task)
            self._drop(self._tags_of(found))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread_id)
                continue
            found = [t async for t in self.saver.alist(_thread_config(thread_id))]
            try:
                await self.saver.aprune([thread_id], strategy=strategy)
            except NotImplementedError:
                await self.saver.adelete_thread(thread_id)
                for kept in _newest(found):
                    config = await self.saver.aput(_copied(kept, thread_id, parent=False), kept.checkpoint,
                                                   kept.metadata, kept.checkpoint["channel_versions"])
                    for task, writes in _by_task(kept):
                        await self.saver.aput_writes(config, writes, task)
            await self._adrop(self._tags_of(found))

    def _of(self, thread_id: str) -> builtins.list[CheckpointTuple]:
        return [*self.saver.list(_thread_config(thread_id))]

    def _tags_of(self, found: Any) -> builtins.list[str]:
        """Returns the tags of checkpoints, newest first, without that of the first snapshot."""
        newest = sorted(found, key=lambda t: t.checkpoint["id"], reverse=True)
        tags = dict.fromkeys((t.metadata or {}).get(SNAPSHOT) for t in newest)
        return [t for t in tags if t and t != self.snapshot]

    def _forget(self, thread_id: str) -> None:
        with self._lock:
            thread = self._threads.pop(thread_id, None)
        if thread is not None and thread.sandbox is not None:
            _end(thread.sandbox)

    def _drop(self, tags: Sequence[str]) -> None:
        """Deletes snapshots that no checkpoint names any more."""
        for tag in tags:
            if next(iter(self.saver.list(None, filter={SNAPSHOT: tag}, limit=1)), None) is None:
                self._delete(tag)

    async def _adrop(self, tags: Sequence[str]) -> None:
        for tag in tags:
            used = False
            async for _ in self.saver.alist(None, filter={SNAPSHOT: tag}, limit=1):
                used = True
            if not used:
                await asyncio.to_thread(self._delete, tag)

    def _delete(self, tag: str) -> None:
        try:
            self.client.snapshot(tag).delete(force=True)
        except forkd.NotFoundError:
            pass


def _place(config: Any) -> tuple[str, str, str]:
    """Returns the thread, the namespace of the graph, and the checkpoint on which a node runs."""
    conf = config.get("configurable", {})
    if conf.get("__pregel_durability") == "exit":
        raise RuntimeError("durability 'exit' writes no checkpoint between nodes: use 'sync' or 'async'")
    ns = "|".join(str(conf.get("checkpoint_ns", "")).split("|")[:-1])
    checkpoint = (conf.get("checkpoint_map") or {}).get(ns)
    if "thread_id" not in conf or checkpoint is None:
        raise RuntimeError("sandbox() needs the RunnableConfig that LangGraph gives to a node or a tool")
    return str(conf["thread_id"]), ns, checkpoint


def _thread_config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def _copied(found: CheckpointTuple, thread_id: str, *, parent: bool = True) -> Any:
    """Returns the config under which a checkpoint is written to a thread."""
    before = found.parent_config if parent else None
    conf = {"thread_id": thread_id, "checkpoint_ns": found.config["configurable"].get("checkpoint_ns", "")}
    if before is not None:
        conf["checkpoint_id"] = before["configurable"]["checkpoint_id"]
    return {"configurable": conf}


def _without_sandbox(metadata: Any) -> Any:
    return {**metadata, SANDBOX: ""}


def _by_task(found: CheckpointTuple) -> list[tuple[str, list[tuple[str, Any]]]]:
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in found.pending_writes or []:
        tasks.setdefault(task, []).append((channel, value))
    return [*tasks.items()]


def _newest(found: Sequence[CheckpointTuple]) -> list[CheckpointTuple]:
    kept: dict[str, CheckpointTuple] = {}
    for t in sorted(found, key=lambda t: t.checkpoint["id"]):
        kept[t.config["configurable"].get("checkpoint_ns", "")] = t
    return [*kept.values()]


def _end(sandbox: forkd.Sandbox) -> None:
    try:
        sandbox.kill()
    except forkd.NotFoundError:
        pass
