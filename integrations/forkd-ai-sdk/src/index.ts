/** The AI SDK's sandboxes as forks of a warm virtual machine. */
import { createHash } from "node:crypto";
import { HarnessCapabilityUnsupportedError, HarnessSandboxAuthenticationError, type HarnessV1NetworkPolicy,
  type HarnessV1NetworkSandboxSession, type HarnessV1SandboxProvider } from "@ai-sdk/harness";
import { ConflictError, Forkd, ForbiddenError, NotFoundError, UnauthorizedError, type Policy, type Sandbox,
  type Snapshot } from "@forkd/sdk";
import { ForkdSession } from "./session.js";

export { ForkdSession } from "./session.js";

/** Options of `forkdSandbox`. */
export interface ForkdSandboxOptions {
  /** Snapshot that sessions are forked from. */
  snapshot: string;
  /** Client of the daemon. The default is `new Forkd()`. */
  client?: Forkd;
  /** Seconds after which a session's sandbox ends. 0 means without a limit. The default is one hour. */
  ttlSecs?: number;
  /** Network policy of the sessions. The default is that of the snapshot. */
  network?: Policy;
  /** Ports of servers in the sandbox. They need no declaration; harnesses show the list to the model. */
  ports?: readonly number[];
  /** Directory of relative commands and files. The default is the home directory of the guest's user. */
  workingDirectory?: string;
}

/**
 * Returns a sandbox provider for harness agents. Each session is a fork. The first session of an `identity` runs its setup
 * once, and a branch keeps the result: later sessions fork that, with its processes.
 *
 * A session with a `sessionId` has a workspace of that name: `stop` pauses it, and `resumeSession` continues it.
 */
export function forkdSandbox(options: ForkdSandboxOptions): HarnessV1SandboxProvider {
  const client = options.client ?? new Forkd();
  return {
    specificationVersion: "harness-sandbox-v1",
    providerId: "forkd",
    createSession: ({ sessionId, identity, onFirstCreate, abortSignal: signal } = {}) => explained(async () => {
      const from = identity
        ? await prepared(client, options, identity, onFirstCreate, signal)
        : client.snapshot(options.snapshot);
      const { sandbox, workspace } = await begin(client, options, from, sessionId, signal);
      const session = await ForkdSession.open(client, sandbox, options, workspace);
      if (!identity) await setUp(session, onFirstCreate, signal);
      return session;
    }),
    resumeSession: ({ sessionId, abortSignal: signal }) => explained(async () => {
      const { liveSandboxId } = await client.workspaces.resume(nameOf(sessionId), { signal });
      return ForkdSession.open(client, client.sandbox(liveSandboxId!), options, nameOf(sessionId));
    }),
  };
}

type SetUp = NonNullable<NonNullable<Parameters<HarnessV1SandboxProvider["createSession"]>[0]>["onFirstCreate"]>;

/** Runs the setup of a new session. If it fails, the sandbox ends. */
async function setUp(session: ForkdSession, work: SetUp | undefined, abortSignal?: AbortSignal): Promise<void> {
  try {
    await work?.(session.restricted(), { abortSignal });
  } catch (e) {
    await session.destroy();
    throw e;
  }
}

/** Returns the snapshot of an identity. If there is none, it makes one. */
async function prepared(client: Forkd, o: ForkdSandboxOptions, identity: string, work: SetUp | undefined,
  signal?: AbortSignal): Promise<Snapshot> {
  const tag = "ai-" + createHash("sha256").update(JSON.stringify([o.snapshot, identity])).digest("hex").slice(0, 32);
  const snapshot = client.snapshot(tag);
  try {
    await snapshot.info({ signal });
    return snapshot;
  } catch (e) {
    if (!(e instanceof NotFoundError)) throw e;
  }
  const { sandbox } = await begin(client, o, client.snapshot(o.snapshot), undefined, signal);
  const session = await ForkdSession.open(client, sandbox, o, undefined);
  await setUp(session, work, signal);
  try {
    await sandbox.branch({ tag, signal });
  } catch (e) {
    if (!(e instanceof ConflictError)) throw e; // another session of this identity was faster
  } finally {
    await session.destroy();
  }
  return snapshot;
}

async function begin(client: Forkd, o: ForkdSandboxOptions, from: Snapshot, sessionId: string | undefined,
  signal?: AbortSignal): Promise<{ sandbox: Sandbox; workspace?: string }> {
  if (sessionId === undefined) {
    return { sandbox: await from.fork({ ttlSecs: o.ttlSecs ?? 3600, network: o.network, signal }) };
  }
  const workspace = nameOf(sessionId);
  const { liveSandboxId } = await client.workspaces.create({ name: workspace, snapshotTag: from.tag }, { signal });
  const sandbox = client.sandbox(liveSandboxId!);
  if (o.network !== undefined) await sandbox.setNetwork(o.network, { signal });
  return { sandbox, workspace };
}

/** Returns the name of a session's workspace, which has letters, digits, - and _ only. */
function nameOf(sessionId: string): string {
  if (/^[A-Za-z0-9_-]{1,60}$/.test(sessionId)) return "ai-" + sessionId;
  return "ai-" + createHash("sha256").update(sessionId).digest("hex").slice(0, 32);
}

/** Turns errors about the key into the harness's class for them. */
async function explained<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (e) {
    if (e instanceof UnauthorizedError || e instanceof ForbiddenError) {
      throw new HarnessSandboxAuthenticationError({ providerId: "forkd", message: e.message, cause: e } as never);
    }
    throw e;
  }
}

/** Returns forkd's policy for the harness's. */
export function policyOf(policy: HarnessV1NetworkPolicy): Policy {
  if (policy.mode === "allow-all") return "public";
  if (policy.mode === "deny-all") return "none";
  if (policy.deniedCIDRs?.length) {
    throw new HarnessCapabilityUnsupportedError({
      harnessId: "forkd", message: "forkd's policies let allowed hosts win over deniedCIDRs; leave them out: private and " +
        "metadata addresses are never reachable",
    } as never);
  }
  return { allow: [...(policy.allowedHosts ?? []), ...(policy.allowedCIDRs ?? [])] };
}
