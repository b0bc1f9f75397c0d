/** A state as text, shape and colour. Colour alone would not reach everybody. */
import type { Sandbox, Snapshot } from "../api/types";

export type Tone = "good" | "rest" | "busy" | "bad" | "warn" | "plain";

const tones: Record<string, Tone> = {
  running: "good", ready: "plain", paused: "rest", pausing: "busy", resuming: "busy", writing: "busy", stalled: "warn",
  failed: "bad", damaged: "bad", active: "good", expired: "rest", revoked: "bad",
};

export function Badge({ text, tone }: { text: string; tone?: Tone }) {
  return <span class={`badge ${tone ?? tones[text] ?? "plain"}`}>{text}</span>;
}

export const snapshotState = (s: Snapshot): string => (s.damaged?.length ? "damaged" : s.status);

export const sandboxState = (s: Sandbox): string => s.status;
