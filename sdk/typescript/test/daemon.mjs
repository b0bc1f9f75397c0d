// A small HTTP server in place of the daemon, and frames of the agent's streams.
import http from "node:http";

/** Starts a server with a handler, and returns its URL. */
export async function serve(handler, where = { port: 0, host: "127.0.0.1" }) {
  const server = http.createServer(async (request, answer) => {
    let body = "";
    try {
      for await (const chunk of request.setEncoding("latin1")) body += chunk;
    } catch {
      return; // the client left its upload
    }
    handler(request, answer, Buffer.from(body, "latin1"));
  });
  await new Promise((resolve) => server.listen(where, resolve));
  const close = () => new Promise((resolve) => {
    server.closeAllConnections();
    server.close(resolve);
  });
  return { server, close, url: where.path ? `unix://${where.path}` : `http://127.0.0.1:${server.address().port}` };
}

/** Answers with JSON. */
export function json(answer, value, status = 200) {
  answer.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
}

/** Returns a message in Connect's envelope. */
export function frame(message, flags = 0) {
  const data = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt8(flags);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

export const started = frame({ event: { start: { pid: 7 } } });
export const output = (b) => frame({ event: { data: { stdout: Buffer.from(b).toString("base64") } } });
export const ended = Buffer.concat([frame({ event: { end: { exitCode: 0, exited: true, status: "exit status 0" } } }), frame({}, 2)]);
