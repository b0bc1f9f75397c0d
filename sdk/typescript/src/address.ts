/** The address of the daemon: arguments, environment, the program forkd, or the default socket. */
import { make } from "./errors.js";

/** Address of a daemon. */
export interface Address {
  url: string;
  token: string;
  /** SHA-256 of the daemon's certificate in hex, or empty. */
  fingerprint: string;
  /** Paths of a client's certificate and key in PEM, or empty. */
  clientCert?: string;
  clientKey?: string;
}

/** What a caller knows of the address. */
export interface AddressOptions {
  url?: string;
  token?: string;
  machine?: string;
  tlsFingerprint?: string;
  /** Paths of the client's certificate and its key in PEM, for a daemon that asks for one. */
  tlsClientCert?: string;
  tlsClientKey?: string;
  /** Path of the program forkd. The default is FORKD_BIN, else forkd in PATH. */
  program?: string;
}

const SOCKET = "/run/forkd/forkd.sock";

function env(name: string): string {
  try {
    return globalThis.process?.env?.[name] ?? "";
  } catch {
    return ""; // Deno without --allow-env
  }
}

/** Returns the address if it needs no program: it was given, or is in the environment. */
export function knownAddress(o: AddressOptions): Address | undefined {
  if (o.url) return { ...parsed(o.url, o.token ?? "", o.tlsFingerprint ?? ""), clientCert: o.tlsClientCert, clientKey: o.tlsClientKey };
  const url = env("FORKD_URL");
  if (o.machine || !url) return undefined;
  return {
    ...parsed(url, o.token ?? env("FORKD_TOKEN"), o.tlsFingerprint ?? env("FORKD_TLS_FINGERPRINT")),
    clientCert: o.tlsClientCert ?? env("FORKD_TLS_CLIENT_CERT"), clientKey: o.tlsClientKey ?? env("FORKD_TLS_CLIENT_KEY"),
  };
}

/** Returns the address, and asks the program forkd if needed, which starts a machine if needed. */
export async function findAddress(o: AddressOptions): Promise<Address> {
  const known = knownAddress(o);
  if (known) return known;
  const program = o.program || env("FORKD_BIN") || "forkd";
  const tried = ["FORKD_URL is not set"];
  try {
    return await ask(program, o);
  } catch (e) {
    tried.push(`${program}: ${(e as Error).message}`);
  }
  if (!o.machine && await exists(SOCKET)) return parsed(`unix://${SOCKET}`, o.token ?? "", "");
  if (!o.machine) tried.push(`there is no socket ${SOCKET}`);
  throw make(`no daemon found: ${tried.join("; ")}`, {
    code: "unreachable", hint: "start one with `forkd serve`, or set FORKD_URL and FORKD_TOKEN",
  });
}

async function exists(path: string): Promise<boolean> {
  try {
    const fs = await import("node:fs/promises");
    await fs.access(path);
    return true;
  } catch {
    return false;
  }
}

async function ask(program: string, o: AddressOptions): Promise<Address> {
  const { execFile } = await import("node:child_process");
  const args = ["daemon", "address", "--json", ...(o.machine ? ["--machine-name", o.machine] : [])];
  const out = await new Promise<string>((resolve, reject) => {
    execFile(program, args, { timeout: 180_000, maxBuffer: 1 << 20 }, (e, stdout, stderr) => {
      if (!e) return resolve(stdout);
      const missing = (e as NodeJS.ErrnoException).code === "ENOENT";
      reject(new Error(missing ? "there is no such program" : lastLine(stderr) || `it ended with ${e.code}`));
    });
  });
  // The answer has a token: an error must not show it.
  let got: Record<string, unknown> = {};
  try {
    got = JSON.parse(out) as Record<string, unknown>;
  } catch { /* below */ }
  if (typeof got?.url !== "string") throw new Error("its answer has no url");
  return parsed(got.url, o.token ?? String(got.token ?? ""), o.tlsFingerprint ?? String(got.tls_fingerprint ?? ""));
}

/** Returns the last line, or the text of a JSON error on it. */
function lastLine(text: string): string {
  const line = text.trim().split("\n").pop() ?? "";
  try {
    return String((JSON.parse(line) as { error?: string }).error ?? line);
  } catch {
    return line;
  }
}

/** Checks a URL. A password in it is refused, because URLs get into logs. */
function parsed(url: string, token: string, fingerprint: string): Address {
  if (!/^[\x21-\x7e]*$/.test(token.trim())) {
    throw make("the token has characters that no header can carry", { code: "invalid_request", hint: "trim the token's file" });
  }
  const u = url.startsWith("tcp://") ? "http://" + url.slice(6) : url;
  const shown = shownUrl(u);
  if (!/^(https?|unix):\/\/./.test(u) || !canParse(u)) {
    throw make(`${shown} is no address of a daemon`, {
      code: "invalid_request", hint: "use http://HOST:PORT, https://HOST:PORT or unix:///PATH",
    });
  }
  const parts = new URL(u);
  if (parts.username || parts.password) {
    throw make(`the address ${shown} has a user or password`, {
      code: "invalid_request", hint: "pass the token as token, or in FORKD_TOKEN",
    });
  }
  return { url: u.replace(/\/+$/, ""), token: token.trim(), fingerprint: fingerprint.replace(/^sha256:/, "").replaceAll(":", "").toLowerCase() };
}

function canParse(u: string): boolean {
  try {
    return Boolean(new URL(u));
  } catch {
    return false;
  }
}

/** Returns a URL without user, password and query. */
export function shownUrl(url: string): string {
  return url.replace(/^([a-z]+:\/\/)[^/]*@/i, "$1").replace(/[?#].*$/s, "");
}
