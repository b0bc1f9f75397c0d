// Builds templates with E2B's own package: each public method, good and bad.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
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
for (const [says, t] of [
  ['nobody-here', Template().fromTemplate(base).runCmd('true', { user: 'nobody-here' })],
  ['failed to create workdir', Template().fromTemplate(base).setWorkdir('/proc/nowhere')],
  ['exit status 3', Template().fromTemplate(base).setStartCmd('exit 3', 'false')],
  ['exit status', Template().fromTemplate(base).remove('/proc/version')],
  ['exit status', Template().fromTemplate(base).rename(out + '/none', out + '/other')],
  ['exit status', Template().fromTemplate(base).makeDir('/proc/nowhere')],
  ['exit status', Template().fromTemplate(base).makeSymlink('/x', '/proc/nowhere/x')],
  ['no name', Template().fromTemplate(base).setEnvs({ 'A=': 'b' })],
  ['exit status', Template().fromTemplate(base).gitClone(out + '/none', out + '/never')],
  ['exit status', Template().fromTemplate(base).bunInstall('none')], // E2B's own base has bun
  ['ENOTCACHED', Template().fromTemplate(base).setWorkdir(out).npmInstall('forkd-none --offline')],
  ['would come from a registry', Template().fromNodeImage()],
  ['would come from a registry', Template().fromPythonImage()],
  ['would come from a registry', Template().fromBunImage()],
  ['would come from a registry', Template().fromDebianImage()],
  ["template 'ubuntu' not found", Template().fromUbuntuImage()],
  ['would come from a registry', Template().fromFedoraImage()],
  ['would come from a registry', Template().fromAlpineImage()],
  ["template 'archlinux' not found", Template().fromArchImage()],
  ['would come from a registry', Template().fromAWSRegistry('1.dkr.ecr.eu-west-1.amazonaws.com/a',
    { accessKeyId: 'id', secretAccessKey: 'key', region: 'eu-west-1' })],
  ['would come from a registry', Template().fromGCPRegistry('gcr.io/a/b', { serviceAccountJSON: { type: 'service_account' } })],
  ['would come from a registry', Template().fromDockerfile('FROM python:3\nRUN true')],
]) {
  await fails(BuildError, says, Template.build(t, bad))
}
await fails(BuildError, 'not found', Template.build(Template().fromTemplate('nope-' + name), bad))
await fails(BuildError, 'Invalid template name', Template.build(Template().fromTemplate(base), 'a b'))
await fails(BuildError, 'Invalid template name', Template.buildInBackground(Template().fromTemplate(base), 'a b'))
const missing = Template({ fileContextPath: context }).fromTemplate(base).copy('none.txt', '/x')
await fails(Error, 'none.txt', Template.build(missing, bad))
assert.throws(() => Template({ fileContextPath: context }).fromTemplate(base).copy('../../x', '/x'))
assert.equal(await Template.exists(bad), false)
assert.equal(await Template.aliasExists(bad), false)

// These want a base of E2B's that is not here, and the package says so.
assert.throws(() => Template().fromTemplate(base).addMcpServer('x'), BuildError)
assert.throws(() => Template().fromTemplate(base).betaDevContainerPrebuild('/x'), BuildError)
assert.throws(() => Template().fromTemplate(base).betaSetDevContainerStart('/x'), BuildError)

// A step that can succeed but once is found in the cache, and fails where that is not looked at.
const once = (t) => Template.build(t.runCmd(`test ! -e ${out}/once && touch ${out}/once`, { user: 'root' }), 'once-' + name)
await once(Template().fromTemplate(base))
await once(Template().fromTemplate(base))
await fails(BuildError, 'exit status 1', once(Template().fromTemplate(base).skipCache()))

// A server that has neither the image nor a snapshot of it.
await fails(BuildError, "template 'base' not found",
  Template.build(Template().fromBaseImage().runCmd('true'), bad, { apiUrl: process.env.E2B_TEST_BARE }))

const plain = Template().fromImage('base').runCmd('true') // which asks nobody
assert(Template.toDockerfile(plain).startsWith('FROM base\nRUN true'), Template.toDockerfile(plain))
assert.throws(() => Template.toDockerfile(Template().fromTemplate(base)))
assert.equal(JSON.parse(await Template.toJSON(plain)).fromImage, 'base')

const begun = await Template.buildInBackground(Template().fromBaseImage().runCmd('echo done'), 'bg-' + name)
let status
do {
  status = await Template.getBuildStatus(begun, { logsOffset: 0 })
} while (status.status === 'waiting' || status.status === 'building')
assert.equal(status.status, 'ready')
assert(status.logEntries.some((e) => e.message.includes('FROM base')))
await fails(BuildError, '404', Template.getBuildStatus({ ...begun, buildId: randomUUID() }))

const linked = await Template.build(Template({ fileContextPath: context }).fromTemplate(name).setUser('root')
  .copyItems([{ src: 'one.txt', dest: out + '/items/' }, { src: 'src/a.js', dest: out + '/items/' }])
  .makeDir(out + '/made/deep', { mode: 0o700 })
  .makeSymlink(out + '/items/one.txt', out + '/made/link')
  .rename(out + '/made/link', out + '/made/renamed')
  .remove(out + '/items/a.js')
  .setReadyCmd(waitForFile(out + '/made/renamed')), 'items-' + name)
assert.equal(linked.name, 'items-' + name)
assert.equal(read('made/renamed'), 'one')
assert.equal(fs.existsSync(path.join(out, 'items/a.js')), false)

fs.mkdirSync(path.join(out, 'mine'))
fs.writeFileSync(path.join(out, 'mine/package.json'), '{"name":"mine","version":"1.0.0","main":"index.js"}')
fs.writeFileSync(path.join(out, 'mine/index.js'), 'module.exports = "of npm"')
await Template.build(Template().fromTemplate(base).setUser('root').makeDir(out + '/uses').setWorkdir(out + '/uses')
  .npmInstall(out + '/mine --offline --no-audit --no-fund')
  .runCmd(`node -p 'require("mine")' >${out}/required`), 'npm-' + name)
assert.equal(read('required'), 'of npm\n')

if (fs.existsSync('/usr/bin/git')) {
  const commit = 'git -c user.name=Me -c user.email=me@example.com commit -q -m first'
  await Template.build(Template().fromTemplate(base).setUser('root')
    .runCmd(`git init -q ${out}/repo && cd ${out}/repo && echo kept >file && git add file && ${commit}`)
    .gitClone(out + '/repo', out + '/cloned'), 'git-' + name)
  assert.equal(read('cloned/file'), 'kept\n')
}
console.log('ok')
process.exit(0)
