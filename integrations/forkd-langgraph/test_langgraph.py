"""Graphs of the real LangGraph: every checkpoint is a branch, and time travel brings files and processes back."""
import operator
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

import forkd
from forkd_langgraph import SNAPSHOT, ForkdSaver

TTL = 600


class State(TypedDict):
    seen: Annotated[list[str], operator.add]


@pytest.fixture
def saver(client, snapshot):
    inner = InMemorySaver()
    saver = ForkdSaver(inner, snapshot=snapshot, client=client, ttl=TTL)
    yield saver
    for thread in list(inner.storage):
        saver.delete_thread(thread)


def graph_of(saver, *, ask=False):
    """Three nodes that add a line each; the first also starts a process."""
    def add(name):
        def node(state: State, config):
            box = saver.sandbox(config)
            if name == "a":
                box.exec("setsid sleep 7654 >/dev/null 2>&1 </dev/null &")
            if name == "c":
                box.exec("for p in $(grep -la 'sleep.765[4]' /proc/[0-9]*/cmdline | cut -d/ -f3); do kill $p; done")
            if ask and name == "b":
                interrupt("go on?")
            box.exec(f"echo {name} >> lines")
            return {"seen": [look(box)]}
        return node
    builder = StateGraph(State)
    for name in "abc":
        builder.add_node(name, add(name))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", "c")
    builder.add_edge("c", END)
    return builder.compile(checkpointer=saver)


def look(box):
    return box.exec("cat lines | tr -d '\\n'; grep -qa 'sleep.765[4]' /proc/[0-9]*/cmdline && echo +process; true"
                    ).stdout.strip()


def config_of(thread):
    return {"configurable": {"thread_id": thread}}


def before(graph, thread, node):
    """Returns the checkpoint at which a node is next."""
    return next(s for s in graph.get_state_history(config_of(thread)) if s.next == (node,))


def test_time_travel_brings_files_and_processes_back(saver, client):
    graph = graph_of(saver)
    assert graph.invoke({"seen": []}, config_of("t"))["seen"] == ["a+process", "ab+process", "abc"]
    tags = [s.metadata[SNAPSHOT] for s in graph.get_state_history(config_of("t"))]
    assert len(set(tags)) >= 4 and all(client.snapshot(t).info() for t in tags)

    old = before(graph, "t", "b")
    assert graph.get_state(old.config).values["seen"] == ["a+process"]  # reading moves nothing
    assert look(saver._threads["t"].sandbox) == "abc"
    assert graph.invoke(None, old.config)["seen"] == ["a+process", "ab+process", "abc"]

    changed = graph.update_state(before(graph, "t", "c").config, {"seen": ["edited"]})
    assert graph.invoke(None, changed)["seen"][-1] == "abc"

    # Two lines of history: the newest run ended on one, this goes back to the other.
    assert graph.invoke(None, old.config)["seen"] == ["a+process", "ab+process", "abc"]
    made = {s.metadata[SNAPSHOT] for s in graph.get_state_history(config_of("t"))} - {saver.snapshot}
    box = saver._threads["t"].sandbox
    saver.delete_thread("t")
    assert not made & {s.tag for s in client.snapshots()}
    with pytest.raises(forkd.NotFoundError):
        box.info()


def test_an_interrupt_travels_and_a_new_process_takes_over(saver, client, snapshot):
    graph = graph_of(saver, ask=True)
    graph.invoke({"seen": []}, config_of("i"))
    asked = graph.get_state(config_of("i"))
    assert asked.next == ("b",)
    again = ForkdSaver(saver.saver, snapshot=snapshot, client=client, ttl=TTL)  # as after a restart
    graph = graph_of(again, ask=True)
    assert graph.invoke(Command(resume="yes"), config_of("i"))["seen"][-1] == "abc"
    # langgraph#7498: back to the interrupt, then resume: the older state, not the newest one.
    graph.invoke(None, asked.config)
    assert graph.invoke(Command(resume="yes"), config_of("i"))["seen"] == ["a+process", "ab+process", "abc"]
    again.delete_thread("i")


def test_an_ended_sandbox_is_forked_anew(saver):
    graph = graph_of(saver, ask=True)
    graph.invoke({"seen": []}, config_of("e"))
    saver._threads["e"].sandbox.kill()
    assert graph.invoke(Command(resume="yes"), config_of("e"))["seen"] == ["a+process", "ab+process", "abc"]


async def test_async_copy_and_prune(saver, client):
    graph = graph_of(saver)
    got = await graph.ainvoke({"seen": []}, config_of("x"))
    assert got["seen"] == ["a+process", "ab+process", "abc"]
    await saver.acopy_thread("x", "y")
    tags = {s.metadata[SNAPSHOT] for s in graph.get_state_history(config_of("x"))} - {saver.snapshot}
    await saver.adelete_thread("x")
    assert tags <= {s.tag for s in client.snapshots()}  # the copy has them
    got = await graph.ainvoke(None, before(graph, "y", "c").config)
    assert got["seen"] == ["a+process", "ab+process", "abc"]
    await saver.aprune(["y"])
    left = {s.metadata[SNAPSHOT] for s in graph.get_state_history(config_of("y"))}
    assert len(left) == 1 and not (tags - left) & {s.tag for s in client.snapshots()}
    got = await graph.ainvoke({"seen": []}, config_of("y"))  # a thread goes on after that
    assert got["seen"][-3:] == ["abca+process", "abcab+process", "abcabc"]


def test_subgraphs(saver):
    """langgraph#8458: LangGraph may start a subgraph again from its beginning; the sandbox follows the state."""
    def inner(name):
        def node(state: State, config):
            box = saver.sandbox(config)
            box.exec(f"echo {name} >> lines")
            return {"seen": [look(box)]}
        return node
    sub = StateGraph(State)
    sub.add_node("p", inner("p"))
    sub.add_node("q", inner("q"))
    sub.add_edge(START, "p")
    sub.add_edge("p", "q")
    top = StateGraph(State)
    top.add_node("a", inner("a"))
    top.add_node("sub", sub.compile())
    top.add_edge(START, "a")
    top.add_edge("a", "sub")
    graph = top.compile(checkpointer=saver)
    graph.invoke({"seen": []}, config_of("s"))
    assert graph.invoke(None, before(graph, "s", "sub").config)["seen"][-1] == "apq"
    assert look(saver._threads["s"].sandbox) == "apq"


def test_exit_durability_is_refused(saver):
    with pytest.raises(RuntimeError, match="durability"):
        graph_of(saver).invoke({"seen": []}, config_of("d"), durability="exit")
