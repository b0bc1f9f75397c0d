import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import https from "node:https";
import { test } from "node:test";
import { inspect } from "node:util";
import { Forkd } from "../dist/index.js";

const file = (name) => new URL(`testdata/${name}.pem`, import.meta.url).pathname;
const [cert, key] = ["cert", "key"].map((name) => readFileSync(file(name)));
const tlsFingerprint = new X509Certificate(cert).fingerprint256;

/** Runs use with the URL of a server that takes clients with this certificate only. */
async function withServer(use) {
  const server = https.createServer({ cert, key, ca: cert, requestCert: true, rejectUnauthorized: true }, (_, a) => {
    a.writeHead(200, { "Content-Type": "application/json" });
    a.end('{"ok":true}');
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  try {
    await use(`https://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  }
}

test("a client certificate is sent", () => withServer(async (url) => {
  const client = new Forkd({ url, tlsFingerprint, tlsClientCert: file("cert"), tlsClientKey: file("key") });
  assert.equal(await client.health(), true);
  assert.ok(!inspect(client, { depth: 9 }).includes("key.pem"));
  await client.close();
}));

test("errors about certificates", () => withServer(async (url) => {
  for (const [options, expected] of [
    [{ tlsFingerprint }, { name: "UnreachableError" }],
    [{ tlsFingerprint, tlsClientCert: file("cert") }, { code: "invalid_request" }],
    [{ tlsFingerprint, tlsClientCert: file("cert"), tlsClientKey: "/nowhere" }, { code: "invalid_request", message: /nowhere/ }],
    [{ tlsFingerprint: "00".repeat(32), tlsClientCert: file("cert"), tlsClientKey: file("key") }, { reason: "tls_untrusted" }],
  ]) {
    const client = new Forkd({ url, retryForMs: 0, ...options });
    await assert.rejects(client.health(), expected);
    await client.close();
  }
}));
