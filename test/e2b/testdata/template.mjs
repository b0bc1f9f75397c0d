// Builds templates with E2B's own package: each public method, good and bad.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { BuildError, Sandbox, Template, TemplateError, waitForFile } from 'e2b'

const dir = process.env.E2B_TEST_DIR
const base = process.env.E2B_TEST_TEMPLATE
const name = 'js-' + Math.random().toString(36).slice(2, 10)
const out = path.join(dir, 'out')
const context = path.join(dir, 'context')
fs.mkdirSync(out)
fs.mkdirSync(path.join(context, 'src/sub'), { recursive: true })
fs.writeFileSync(path.join(context, 'one.txt'), 'one')
fs.writeFileSync(path.join(context, 'src/a.js'), 'a')
fs.writeFileSync(path.join(context, 'src/sub/b.js'), 'b')
const read = (name) => fs.readFileSync(path.join(out, name), 'utf8')

async function fails(kind, words, promise) {
  await assert.rejects(promise, (e) => {
    assert(e instanceof kind, `${e} is a ${e?.constructor?.name}`)
    assert(e.message.includes(words), `${e.message} does not say ${words}`)
    return true
  })
}

const template = () =>
  Template({ fileContextPath: context })
    .fromTemplate(base)
    .setUser('root')
    .setWorkdir(out + '/work')
    .setEnvs({ GREETING: 'hello' })
    .copy('one.txt', 'copied.txt')
    .copy('src', out + '/tree/', { mode: 0o750 })
    .runCmd(`echo ran >>${out}/count; echo $GREETING; pwd`)
    .setStartCmd(`echo $GREETING >${out}/started; exec sleep 1000`, waitForFile(out + '/started'))

assert.equal(await Template.exists(name), false)
let said = []
const onBuildLogs = (e) => said.push(e.message)
const info = await Template.build(template(), name, { onBuildLogs })
assert.equal(info.name, name)
assert(said.some((m) => m.includes('[stdout]: hello')), said.join('\n'))
assert.equal(read('work/copied.txt'), 'one')
assert.equal(read('tree/sub/b.js'), 'b')
assert.equal(read('started'), 'hello\n')
assert.equal(await Template.exists(name), true)
assert.equal(await Template.aliasExists(name), true)

said = []
const again = await Template.build(template(), name, { tags: ['v1.0'], onBuildLogs })
assert.equal(again.templateId, info.templateId)
assert(said.some((m) => m.includes('CACHED')), said.join('\n'))
assert.equal(read('count'), 'ran\n')
await Template.build(template(), name, { skipCache: true })
assert.equal(read('count'), 'ran\nran\n')

const sandbox = await Sandbox.create(name)
const r = await sandbox.commands.run('echo $GREETING; pwd')
assert.equal(r.stdout, `hello\n${out}/work\n`)
await sandbox.kill()

const given = await Template.assignTags(name + ':v1.0', ['prod', 'next'])
assert.equal(given.buildId, again.buildId)
assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'next', 'prod', 'v1.0'])
await Template.removeTags(name, 'prod')
assert.equal(await Template.exists(name + ':prod'), false)
await fails(TemplateError, "Cannot delete the 'default' tag", Template.removeTags(name, 'default'))
await fails(TemplateError, 'not found', Template.assignTags('nope-' + name + ':v1', 'a'))

const bad = 'bad-' + name
await fails(BuildError, 'exit status 7', Template.build(Template().fromTemplate(base).runCmd('echo why >&2; exit 7'), bad))
await fails(BuildError, 'would come from a registry', Template.build(Template().fromNodeImage(), bad))
await fails(BuildError, 'not found', Template.build(Template().fromTemplate('nope-' + name), bad))
await fails(BuildError, 'Invalid template name', Template.build(Template().fromTemplate(base), 'a b'))
assert.equal(await Template.exists(bad), false)

const begun = await Template.buildInBackground(Template().fromBaseImage().runCmd('echo done'), 'bg-' + name)
let status
do {
  status = await Template.getBuildStatus(begun, { logsOffset: 0 })
} while (status.status === 'waiting' || status.status === 'building')
assert.equal(status.status, 'ready')
assert(status.logEntries.some((e) => e.message.includes('FROM base')))
console.log('ok')
process.exit(0)
