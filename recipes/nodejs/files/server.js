// Runs programs that arrive on a Unix socket in this process, which was started before the snapshot.
// Request: the program, until the client ends its side. Answer: a line with the exit status, then the output.
'use strict';
const { Console } = require('console');
const fs = require('fs');
const net = require('net');
const { Writable } = require('stream');
const util = require('util');
const clone = require('./clone');

const SOCKET = '/tmp/node-run.sock';
const LARGEST = 16 << 20; // bytes of a program
const AsyncFunction = (async () => {}).constructor;

async function run(code) {
  clone.renew();
  const output = [];
  const sink = new Writable({ write(chunk, _, done) { output.push(chunk); done(); } });
  const out = new Console(sink, sink);
  let status = 0;
  try {
    await new AsyncFunction('require', 'console', code)(require, out);
  } catch (error) {
    status = 1;
    output.push(Buffer.from(util.inspect(error) + '\n'));
  }
  return Buffer.concat([Buffer.from(status + '\n'), ...output]);
}

function serve(connection) {
  const parts = [];
  let size = 0;
  connection.on('error', () => connection.destroy());
  connection.on('data', (part) => {
    size += part.length;
    if (size > LARGEST) connection.destroy();
    else parts.push(part);
  });
  connection.on('end', async () => {
    if (!connection.destroyed) connection.end(await run(Buffer.concat(parts).toString()));
  });
}

// A program's stray error must not end the process for all later ones.
process.on('uncaughtException', (error) => console.error(error));
process.umask(0o077); // the socket is for this user alone
fs.rmSync(SOCKET, { force: true });
net.createServer({ allowHalfOpen: true }, serve).listen(SOCKET, () => console.error('node-run: ready'));
