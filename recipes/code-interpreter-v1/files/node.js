// A kernel of node:repl's evaluation, which has top-level await and keeps const and let from one
// execution to the next. Requests are lines of JSON on the descriptor that
// the first argument names, answers on the second's.
'use strict';
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const vm = require('node:vm');
const repl = require('node:repl');
const util = require('node:util');
const { PassThrough, Writable } = require('node:stream');
const { spawnSync } = require('node:child_process');
const { createRequire } = require('node:module');
const readline = require('node:readline');

const [requests, answers] = process.argv.slice(2).map(Number);

const say = (event) => {
  const b = Buffer.from(JSON.stringify(event) + '\n');
  for (let at = 0; at < b.length;) {
    at += fs.writeSync(answers, b, at);
  }
};

// One message for each write, so that console.log is one.
for (const name of ['stdout', 'stderr']) {
  process[name].write = (chunk, encoding, done) => {
    const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString();
    say({ type: name, text });
    done = typeof encoding === 'function' ? encoding : done;
    if (done) process.nextTick(done);
    return true;
  };
}

// What the REPL would print is for nobody: answers are said here.
const sink = new Writable({ write: (chunk, encoding, done) => done() });
const server = repl.start({
  prompt: '', input: new PassThrough(), output: sink, terminal: false, useGlobal: true, breakEvalOnSigint: true,
});
// Code finds modules from where the context is, not from this file's folder.
globalThis.require = createRequire(path.join(process.cwd(), 'code.js'));
globalThis.display = (value) => say({ type: 'result', main: false, data: bundle(value) });

let interrupt = null; // ends the wait for a promise
const onInterrupt = () => interrupt && interrupt(new Error('Execution was interrupted'));
process.on('SIGINT', onInterrupt);
// Older REPLs evaluate in a domain, which is told of errors in place of the callback.
server._domain?.on('error', (e) => interrupt && interrupt(e));
process.on('unhandledRejection', (e) => process.stderr.write(util.inspect(e) + '\n'));
process.on('uncaughtException', (e) => (interrupt ? interrupt(e) : process.stderr.write(util.inspect(e) + '\n')));

// valid tells whether node's REPL can take the code as it is.
function valid(code) {
  for (const text of [code, `(async () => {${code}\n})`, `(${code}\n)`]) {
    try {
      new vm.Script(text);
      return true;
    } catch {
      // the next may do
    }
  }
  return false;
}

// translate takes types out. A name that is not used in this cell may be in the next, so imports stay.
function translate(code) {
  const config = { compilerOptions: { preserveValueImports: true, target: 'es2022', useDefineForClassFields: true } };
  const r = spawnSync('esbuild', ['--loader=ts', '--target=es2022', '--log-level=error', '--color=false',
    `--tsconfig-raw=${JSON.stringify(config)}`], { input: code, encoding: 'utf8' });
  if (r.error) {
    throw new Error('TypeScript and import statements need esbuild, which is not in this image');
  }
  if (r.status !== 0) {
    throw new SyntaxError(r.stderr.trim());
  }
  return imports(r.stdout);
}

// imports makes esbuild's import statements, each on a line of its own, into what a REPL can run.
function imports(code) {
  const load = (from) => `await import(globalThis.__forkd_resolve(${from}))`;
  return code.replace(/^import (?:(.+?) from )?("(?:[^"\\]|\\.)*");$/gm, (line, names, from) => {
    if (!names) return `${load(from)};`;
    const parts = /^(?:([\w$]+))?(?:, )?(?:\* as ([\w$]+)|\{(.*)\})?$/.exec(names);
    if (!parts) return line;
    const [, fallback, all, some] = parts;
    let out = '';
    if (fallback) out += `var { default: ${fallback} } = ${load(from)};`;
    if (all) out += `var ${all} = ${load(from)};`;
    if (some) out += `var {${some.replace(/([\w$]+|"[^"]*") as /g, '$1: ')}} = ${load(from)};`;
    return out;
  }).replace(/^export \{[^}]*\};?$/gm, '').replace(/^export (?=(const|let|var|function|class|async)\b)/gm, '');
}

globalThis.__forkd_resolve = (name) => {
  const found = /^(node:|data:|file:|https?:)/.test(name) ? name : globalThis.require.resolve(name);
  return path.isAbsolute(found) ? require('node:url').pathToFileURL(found).href : found;
};
for (const name of ['__forkd_resolve']) Object.defineProperty(globalThis, name, { enumerable: false });

// bundle is what a value looks like, by MIME type.
function bundle(value) {
  const data = { 'text/plain': typeof value === 'string' ? value : util.inspect(value) };
  if (value !== null && typeof value === 'object') {
    if (typeof value._toHtml === 'function') data['text/html'] = String(value._toHtml());
    if (typeof value._toPng === 'function') data['image/png'] = String(value._toPng());
    if (typeof value._toSvg === 'function') data['image/svg+xml'] = String(value._toSvg());
    const proto = Object.getPrototypeOf(value);
    if (Array.isArray(value) || proto === null || proto === Object.prototype) {
      try {
        data['application/json'] = JSON.parse(JSON.stringify(value));
      } catch {
        // cycles, BigInt: text only
      }
    }
  }
  return data;
}

// Synchronous code is interrupted by vm, which a listener here would be in the way of: with one, node
// ends. It takes a turn of the event loop until a removed one is gone.
function unheard() {
  process.off('SIGINT', onInterrupt);
  return new Promise(setImmediate);
}

async function evaluate(code) {
  await unheard();
  try {
    return await new Promise((resolve, reject) => {
      server.eval(code + '\n', server.context, 'code', (e, value) => (e ? reject(e.err ?? e) : resolve(value)));
      process.on('SIGINT', onInterrupt); // for what is waited for now
    });
  } finally {
    if (!process.listeners('SIGINT').includes(onInterrupt)) process.on('SIGINT', onInterrupt);
  }
}

// settle takes what interrupts have left. Node's watchdog of SIGINT counts them in a semaphore which it does not
// empty at the end of a script: one that came as the script was ending ends a later one. A script of our own is
// ended in its place; it sleeps, so that the watchdog's thread has its turn.
async function settle() {
  const pause = new vm.Script('Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50)');
  await unheard();
  try {
    for (let left = true; left;) {
      try {
        pause.runInThisContext({ breakOnSigint: true });
        left = false;
      } catch (e) {
        if (e.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw e;
      }
    }
  } finally {
    process.on('SIGINT', onInterrupt);
  }
}

let count = 0;
async function run(request) {
  count++;
  say({ type: 'number_of_executions', execution_count: count });
  let stopped;
  const stop = new Promise((resolve, reject) => { stopped = reject; });
  stop.catch(() => {});
  interrupt = stopped;
  try {
    const code = request.typescript || !valid(request.code) ? translate(request.code) : request.code;
    const value = await Promise.race([evaluate(code).then((v) => v), stop]); // a promise's value
    if (value !== undefined) say({ type: 'result', main: true, data: bundle(value) });
  } catch (e) {
    const is = e !== null && typeof e === 'object' && 'stack' in e;
    say({ type: 'error', name: is ? String(e.name) : 'Error', value: is ? String(e.message) : util.inspect(e),
      traceback: is ? String(e.stack) : util.inspect(e) });
  } finally {
    interrupt = null;
  }
}

async function serve() {
  say({ type: 'ready' });
  // Not a file's stream, whose read blocks a thread that process.exit() would wait for.
  const input = new net.Socket({ fd: requests, readable: true, writable: false });
  for await (const line of readline.createInterface({ input })) {
    const request = JSON.parse(line);
    if (request.op === 'environ') {
      Object.assign(process.env, request.values);
      for (const name of request.remove) delete process.env[name];
    } else if (request.op === 'settle') {
      await settle();
    } else {
      await run(request);
    }
    say({ type: 'done' });
  }
  process.exit(0);
}
serve();
