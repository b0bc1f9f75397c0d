/**
 * Advice by reason and code. The daemon's errors carry none, because it depends on the client: the command line names
 * commands, the page names what it has itself. A word in braces stands for the detail of that name.
 */
const byReason: Record<string, string> = {
  agent_old: "Make the snapshot again from an image of this version.",
  agent_silent: "Look at its console.",
  ancestry_gone: "No snapshot of its ancestry exists. Fork a new sandbox.",
  branch_failed: "Branch again.",
  branches_busy: "Try again when another branch is done.",
  cold_pause: "Pause it with its memory.",
  dependent_sandboxes: "Kill the sandboxes first.",
  dependent_snapshots: "Delete the snapshots built on it first, or delete them together.",
  digests_not_ready: "Try again in a moment.",
  disk_limit: "Roll it back, or kill it and fork with a higher limit.",
  disk_lost_writes: "Fork another sandbox.",
  disk_no_room: "Free space on the daemon's disk. The sandbox then continues by itself.",
  disk_promised: "Kill sandboxes, or ask for fewer.",
  host_descriptors: "Kill sandboxes, or ask for fewer.",
  host_memory: "Kill sandboxes, or ask for fewer.",
  host_pressure: "Try again in ten seconds. The page Limits shows the pressure.",
  host_threads: "Kill sandboxes, or ask for fewer.",
  memory_promised: "Kill sandboxes, or ask for fewer. The page Limits shows the promised memory.",
  net_off: "The daemon runs without forkd-net.",
  net_rule: "A rule is host[:port[-port]][/tcp|udp], such as pypi.org:443 or *.example.com.",
  net_secret: "Set the header's value again.",
  net_starting: "Try again in a moment.",
  no_ancestor: "The two have no common snapshot.",
  no_place: "It must descend from the sandbox that it replaces, and that one must run.",
  not_in_ancestry: "Valid snapshots: {tags}",
  operator_only: "Ask the operator of the daemon.",
  overlay_no_room: "Kill sandboxes or delete snapshots, then try again.",
  quota: "End unused sandboxes, or ask the operator for more {quota}.",
  receipt_not_found: "Receipts are kept for a month, and as long as their sandbox or snapshot exists.",
  restore_refused: "Make the snapshot again on this host.",
  resumes_busy: "Try again when some of them run.",
  same_tag: "Choose another name.",
  sandbox_broken: "Roll it back, or kill it and fork a new one.",
  sandbox_ended: "Fork a new sandbox.",
  sandbox_failed: "Kill it and fork a new one.",
  sandbox_paused: "Resume it first.",
  sandbox_rolled_back: "Its earlier programs have ended. Start them again.",
  scope_missing: "Use a key with the scope {scope}.",
  snapshot_damaged: "Make the snapshot again.",
  snapshot_not_ready: "Try again when it is ready.",
  store_full: "Delete snapshots or images, then try again.",
  tag_taken: "Choose another name.",
  transition_busy: "Try again with fewer requests at once.",
  transition_slow: "Try again in a moment.",
  unsigned: "Push it again with a signature that the operator of this daemon trusts.",
};

const byCode: Record<string, string> = {
  busy: "Try again in a moment.",
  closing: "The daemon is shutting down.",
  draining: "The daemon is being emptied for maintenance. Try again later, or on another.",
  guest_gone: "Look at its console.",
  internal: "The daemon's log has the cause.",
  no_memory: "Kill sandboxes, or ask for fewer.",
  no_resources: "Kill sandboxes, or ask for fewer.",
  no_space: "Delete snapshots or images, then try again.",
  not_found: "It may have ended. The tree shows what exists.",
  not_restorable: "Make the snapshot again.",
  quota_exceeded: "End unused sandboxes, or try again later.",
  timeout: "Try again, or look at its console.",
};

export function hintFor(code: string, reason: string, details: Record<string, string>): string {
  const hint = byReason[reason] ?? byCode[code] ?? "";
  return hint.replace(/\{(\w+)\}/g, (_, name: string) => details[name] ?? name);
}
