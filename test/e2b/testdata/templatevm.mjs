// Builds a template over VMs with E2B's package and uses it; see templatevm.py.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { BuildError, Sandbox, Template } from 'e2b'

const base = process.env.E2B_TEST_TEMPLATE
const name = 'vm-js-' + Date.now().toString(36)
const context = fs.mkdtempSync(path.join(os.tmpdir(), 'e2b-'))
fs.mkdirSync(path.join(context, 'site'))
fs.writeFileSync(path.join(context, 'site', 'index.html'), '<h1>uploaded</h1>')

const template = () =>
  Template({ fileContextPath: context })
    .fromTemplate(base)
    .setEnvs({ GREETING: 'hello ' + name })
    .setWorkdir('/srv/app')
    .copy('site', 'site')
    .runCmd('echo $GREETING from $(id -un) >site/made; echo it is made')
    .setUser('worker')
    .setStartCmd('exec python3 -m http.server 8000 -d site', 'curl -sf http://127.0.0.1:8000/made')

async function build(how = {}) {
  const said = []
  const began = Date.now()
  const info = await Template.build(template(), name, { onBuildLogs: (e) => said.push(e.message), ...how })
  return [info, Date.now() - began, said.join('\n')]
}

const [info, first, log] = await build()
assert(log.includes('[stdout]: it is made') && log.includes('Template is ready'), log)
const [again, second, cached] = await build({ tags: ['v1'] })
assert.equal(again.templateId, info.templateId)
assert(cached.includes('CACHED') && !cached.includes('[stdout]: it is made'), cached)
assert(second < first / 4, `${first} ms, again ${second} ms`)
fs.rmSync(context, { recursive: true })
assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'v1'])

const s = await Sandbox.create(name + ':v1', { timeoutMs: 300_000 })
const r = await s.commands.run('echo $GREETING; pwd; id -un; cat site/made; curl -sf http://127.0.0.1:8000/')
assert.equal(r.stdout, `hello ${name}\n/srv/app\nworker\nhello ${name} from user\n<h1>uploaded</h1>`)
await s.kill()

const on = () => Template().fromTemplate(base)
for (const [says, t] of [
  ['No matching distribution found for of-nobody', on().pipInstall('--no-index of-nobody')],
  ['Unable to locate package of-nobody',
    on().runCmd('rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*', { user: 'root' }).aptInstall('of-nobody')],
]) {
  await assert.rejects(Template.build(t, 'bad-' + name), (e) => e instanceof BuildError && e.message.includes(says))
}

const said = []
const bad = Template.build(Template().fromTemplate(name).runCmd('echo to the log; echo why >&2; exit 7'), 'bad-' + name,
  { onBuildLogs: (e) => said.push(e.message) })
await assert.rejects(bad, (e) => e instanceof BuildError && e.message.includes('exit status 7\nwhy'))
assert(said.some((m) => m.includes('[stdout]: to the log')), said.join('\n'))
assert.equal(await Template.exists('bad-' + name), false)
assert.equal(await Sandbox.deleteSnapshot(info.templateId), true)
console.log('ok   built in', first / 1000, 's, again in', second / 1000, 's')
process.exit(0)
