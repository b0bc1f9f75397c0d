// Lists the public methods of E2B's JavaScript package, as docs/use/e2b.md names them, one a line.
import * as e2b from 'e2b'

const names = new Set()
const own = (name, o, end, skip) => {
  for (; o && o !== end; o = Object.getPrototypeOf(o)) {
    for (const [n, d] of Object.entries(Object.getOwnPropertyDescriptors(o))) {
      if (typeof d.value === 'function' && !skip.includes(n)) names.add(`${name}.${n}`)
    }
  }
}
// What TypeScript calls private or protected is there all the same.
const inner = ['constructor', 'resolveApiOpts', 'resolveOpts', 'fileUrl', 'createSandbox', 'forkSandbox', 'connectSandbox',
  'updatePagination', 'collectStackTrace', 'instructionsWithHashes', 'serialize', 'runGit', 'runShell', 'getRemoteUrl',
  'resolveRemoteName', 'withRemoteCredentials', 'hasUpstream', 'handleEvents', 'iterateEvents', 'start', 'getFullInfo',
  'checkHealth', 'isReadonly', 'killAndCleanUp']
const s = await e2b.Sandbox.create({ debug: true })
for (const part of ['commands', 'files', 'pty', 'git']) own(part, Object.getPrototypeOf(s[part]), Object.prototype, inner)
for (const name of ['Sandbox', 'Template', 'Volume', 'Secret']) {
  own(name, e2b[name], Function.prototype, inner)
  own(name, e2b[name].prototype, Object.prototype, inner)
}
console.log([...names].sort().join('\n'))
