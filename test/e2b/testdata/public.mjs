// Lists the public methods and properties of E2B's JavaScript packages, as testdata/methods.yaml names them, one a line.
// Classes are found by the packages' exports, so a new class is listed too. Handles and results are only exported as
// types: a sandbox of the server makes some.
import http from 'node:http'
import * as e2b from 'e2b'
import * as interpreter from '@e2b/code-interpreter'

// Names that TypeScript calls private or protected.
const inner = ['constructor', 'resolveApiOpts', 'resolveOpts', 'fileUrl', 'createSandbox', 'forkSandbox', 'connectSandbox',
  'updatePagination', 'collectStackTrace', 'instructionsWithHashes', 'serialize', 'runGit', 'runShell', 'getRemoteUrl',
  'resolveRemoteName', 'withRemoteCredentials', 'hasUpstream', 'handleEvents', 'iterateEvents', 'start', 'getFullInfo',
  'checkHealth', 'isReadonly', 'killAndCleanUp', 'handleRequestError', 'getJupyterRequestUrl', 'jupyterUrl',
  'includeDiagnostics', 'mergeOpts', 'getRequestSource', 'buildUserAgent', 'applyUserAgent', 'handleDisconnect', 'handleKill',
  'clientOpts', 'bindClient', 'pushPty', 'pushStdout', 'pushStderr', 'iterateOverEvents', 'flushDecoders']
const getters = { ConnectionConfig: [] } // its getters are the environment's variables
const names = new Set()
const own = (name, o, end) => {
  for (; o && o !== end; o = Object.getPrototypeOf(o)) {
    for (const [n, d] of Object.entries(Object.getOwnPropertyDescriptors(o))) {
      if (n.startsWith('_') || inner.includes(n)) continue
      if (typeof d.value === 'function' || (d.get && !getters[name])) names.add(`${name}.${n}`)
    }
  }
}
const made = (name, o) => own(name, Object.getPrototypeOf(o), Object.prototype)

for (const module of [e2b, interpreter]) {
  for (const [name, c] of Object.entries(module)) {
    if (typeof c !== 'function' || c.prototype instanceof Error || name === 'Git' || name === 'default') continue
    if (!c.prototype || (Object.getOwnPropertyNames(c.prototype).length === 1 && name !== 'Template' && !/^class/.test(String(c)))) {
      names.add(name)
      continue
    }
    const as = name === 'TemplateBase' ? 'Template' : name
    own(as, c, Function.prototype)
    own(as, c.prototype, Object.prototype)
  }
}
const s = await e2b.Sandbox.create(process.env.E2B_TEST_TEMPLATE, { timeoutMs: 60_000 })
try {
  for (const part of ['commands', 'files', 'pty', 'git']) made(part, s[part])
  const h = await s.commands.run('true', { background: true })
  made('CommandHandle', h)
  await h.wait()
  const w = await s.files.watchDir('/tmp', () => {})
  made('WatchHandle', w)
  await w.stop()
} finally {
  await s.kill()
}
made('SandboxPaginator', e2b.Sandbox.list())
made('SnapshotPaginator', e2b.Sandbox.listSnapshots())
made('SecretPaginator', e2b.Secret.list())

// An interpreter with one answer, for the class of results.
const server = http.createServer((_, w) => w.end(['{"type":"result","text":"2","is_main_result":true}',
  '{"type":"error","name":"E","value":"v","traceback":"t"}', '{"type":"end_of_execution"}', ''].join('\n')))
await new Promise((done) => server.listen(0, '127.0.0.1', done))
const c = await interpreter.Sandbox.create({ debug: true, sandboxUrl: `http://127.0.0.1:${server.address().port}` })
const e = await c.runCode('1+1')
made('Execution', e)
made('Result', e.results[0])
made('ExecutionError', e.error)
server.close()
console.log([...names].sort().join('\n'))
process.exit(0)
