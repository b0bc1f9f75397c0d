/** What can be done with a sandbox, a snapshot or a group, in the state it is in. */
import { resume } from "../api/actions";
import type { Sandbox, Snapshot } from "../api/types";
import type { MenuItem } from "../parts/menu";
import { go, toCompare, toSandbox, toSnapshot } from "../state/route";
import { toast, toastError } from "../state/toasts";
import { refresh } from "../state/world";
import type { TreeNode } from "../tree/build";
import { dialog } from "./open";

export function sandboxActions(s: Sandbox): MenuItem[] {
  const runs = s.status === "running" || s.status === "stalled";
  const paused = s.status === "paused";
  const open = (what: "branch" | "rollback" | "pause" | "promote") => () => dialog.set({ do: what, sandbox: s });
  const items: (MenuItem | false)[] = [
    runs && { label: "Branch …", act: open("branch") },
    runs && { label: "Roll back …", act: open("rollback") },
    runs && { label: "Pause …", act: open("pause") },
    paused && { label: "Resume", act: () => void resumeNow(s) },
    (runs || paused) && { label: "Promote …", act: open("promote") },
    { label: "Compare …", act: () => go(toCompare(s.id)) },
    { label: "Kill …", act: () => dialog.set({ do: "kill", ids: [s.id] }), danger: true },
  ];
  return items.filter((i) => i !== false);
}

export function snapshotActions(s: Snapshot): MenuItem[] {
  const items: (MenuItem | false)[] = [
    s.bootable && s.status !== "failed" && { label: "Fork …", act: () => dialog.set({ do: "fork", snapshot: s }) },
    { label: "Compare …", act: () => go(toCompare(s.tag)) },
    { label: "Delete …", act: () => dialog.set({ do: "delete", snapshot: s }), danger: true },
  ];
  return items.filter((i) => i !== false);
}

export function menuOf(node: TreeNode): MenuItem[] {
  switch (node.kind) {
    case "sandbox":
      return [
        { label: "Open", act: () => go(toSandbox(node.sandbox.id)) },
        ...(node.sandbox.status === "running" ? [{ label: "Terminal", act: () => go(toSandbox(node.sandbox.id, "terminal")) }] : []),
        ...sandboxActions(node.sandbox),
      ];
    case "snapshot":
      return [{ label: "Open", act: () => go(toSnapshot(node.snapshot.tag)) }, ...snapshotActions(node.snapshot)];
    case "group":
      return [{
        label: `Kill all ${node.members.length} …`, danger: true,
        act: () => dialog.set({ do: "kill", ids: node.members.map((m) => m.sandbox.id) }),
      }];
    case "gone":
      return [];
  }
}

async function resumeNow(s: Sandbox): Promise<void> {
  try {
    await resume(s.id);
    toast("done", `${s.id} runs again.`);
  } catch (e) {
    toastError(e);
  }
  void refresh();
}
