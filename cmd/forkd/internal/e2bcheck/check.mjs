import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
const require = createRequire(process.cwd() + '/check.mjs')
let e2b
try {
  e2b = await import(pathToFileURL(require.resolve('e2b')))
} catch {
  process.exit(77)
}
const Sandbox = e2b.Sandbox ?? e2b.default
let version = ''
try { version = require('e2b/package.json').version } catch {}
console.log(version)
async function check(s) {
  let said = (await s.commands.run('echo $((40+2))')).stdout
  if (said !== '42\n') throw new Error(`a command says ${said}, want 42`)
  await s.files.write('/tmp/forkd-check', 'kept')
  said = await s.files.read('/tmp/forkd-check')
  if (said !== 'kept') throw new Error(`a file says ${said}`)
}
try {
  const s = await Sandbox.create(process.env.FORKD_TEMPLATE, { timeoutMs: 120_000 })
  try {
    await check(s)
  } finally {
    await s.kill()
  }
} catch (e) { // Node's own words end with its version
  console.error(`${e.name}: ${e.message}`.replaceAll('\n', ' '))
  process.exit(1)
}
