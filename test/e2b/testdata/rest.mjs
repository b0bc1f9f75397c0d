// The methods of E2B's JavaScript package that sdk.mjs and vm.mjs leave out, each with its bad case.
import assert from 'node:assert/strict'
import { NotFoundError, Sandbox, Secret, SecretNotFoundError, Volume } from 'e2b'

const template = process.env.E2B_TEST_TEMPLATE
const base = process.env.E2B_TEST_DIR
const none = 9_999_999

async function commands(s) {
  const h = await s.commands.run('cat', { background: true, stdin: true })
  const again = await s.commands.connect(h.pid)
  await s.commands.sendStdin(h.pid, 'x')
  await s.commands.closeStdin(h.pid)
  assert.equal((await h.wait()).stdout, 'x')
  await again.disconnect()
  await assert.rejects(s.commands.connect(none), NotFoundError)
  await assert.rejects(s.commands.sendStdin(none, 'x'), NotFoundError)
  await assert.rejects(s.commands.closeStdin(none))
  const t = await s.pty.create({ cols: 80, rows: 24, onData: () => {} })
  let out = ''
  const also = await s.pty.connect(t.pid, { onData: (b) => { out += new TextDecoder().decode(b) } })
  await s.pty.resize(t.pid, { cols: 100, rows: 30 })
  await s.pty.sendInput(t.pid, new TextEncoder().encode('stty size; exit 0\n'))
  await also.wait()
  assert.match(out, /30 100/)
  await assert.rejects(s.pty.connect(none, { onData: () => {} }), NotFoundError)
  await assert.rejects(s.pty.resize(none, { cols: 1, rows: 1 }), NotFoundError)
  await assert.rejects(s.pty.sendInput(none, new Uint8Array([1])), NotFoundError)
  const u = await s.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await s.pty.kill(u.pid), true)
  assert.equal(await s.pty.kill(none), false)
}

async function files(s) {
  await s.files.writeFiles([{ path: base + '/j1', data: '1' }, { path: base + '/j2', data: '2' }])
  assert.equal(await s.files.read(base + '/j2'), '2')
  await assert.rejects(s.files.writeFiles([{ path: base, data: 'a directory' }]))
  const form = new FormData()
  form.append('file', new Blob(['sent']), 'up.txt')
  const url = await s.uploadUrl(base + '/up.txt')
  assert.equal((await fetch(url, { method: 'POST', body: form })).status, 200)
  assert.equal(await s.files.read(base + '/up.txt'), 'sent')
  const again = new FormData()
  again.append('file', new Blob(['sent']), 'up.txt')
  assert.equal((await fetch(await s.downloadUrl(base + '/up.txt'), { method: 'POST', body: again })).status, 401)
  const heard = []
  const watch = await s.files.watchDir(base, (e) => heard.push(e.name))
  await s.files.write(base + '/heard', 'x')
  for (let i = 0; i < 300 && !heard.includes('heard'); i++) await new Promise((next) => setTimeout(next, 50))
  await watch.stop()
  const before = heard.length
  await s.files.write(base + '/unheard', 'x')
  await new Promise((next) => setTimeout(next, 200))
  assert.ok(heard.includes('heard'))
  assert.equal(heard.length, before)
}

async function about(s) {
  assert.ok(s.getHost(3000).startsWith(`3000-${s.sandboxId}.`))
  assert.ok(s.getMcpUrl().endsWith('/mcp'))
  await assert.rejects(async () => { if (!(await s.getMcpToken())) throw new Error('there is none') })
  assert.deepEqual(await Sandbox.listSnapshots({ name: 'no-such' }).nextItems(), [])
  await assert.rejects(s.updateNetwork({ allowOut: ['not an address!'] }))
  assert.equal(await s.betaPause(), true)
  assert.equal(await s.pause(), false)
  await s.connect()
}

async function volumes() {
  const made = await Volume.create('rest-mjs')
  await assert.rejects(Volume.create('rest-mjs'), /409/)
  assert.deepEqual((await Volume.list()).filter((v) => v.name === 'rest-mjs').map((v) => v.volumeId), [made.volumeId])
  assert.equal((await Volume.getInfo(made.volumeId)).name, 'rest-mjs')
  const volume = await Volume.connect(made.volumeId)
  assert.equal(volume.volumeId, made.volumeId)
  const at = { apiUrl: process.env.E2B_API_URL }
  const e = await volume.writeFile('/a/b.txt', 'one', { mode: 0o600, uid: 1000, gid: 1000, force: true, ...at })
  assert.deepEqual([e.name, e.path, e.size, e.mode, e.uid, e.type], ['b.txt', '/a/b.txt', 3, 0o600, 1000, 'file'])
  assert.ok(Math.abs(Date.now() - e.mtime.getTime()) < 600_000)
  assert.equal(await volume.readFile('/a/b.txt', at), 'one')
  const large = new Uint8Array(3 << 20).map((_, i) => i * 7)
  assert.equal((await volume.writeFile('large', large, at)).size, large.length)
  assert.deepEqual(await volume.readFile('large', { format: 'bytes', ...at }), large)
  let bytes = 0
  for await (const chunk of await volume.readFile('large', { format: 'stream', ...at })) bytes += chunk.length
  assert.equal(bytes, large.length)
  assert.equal((await volume.makeDir('/d', { mode: 0o700, ...at })).mode, 0o700)
  const paths = async (path, o) => (await volume.list(path, { ...o, ...at })).map((x) => x.path).filter((x) => x !== '/lost+found')
  assert.deepEqual(await paths('/'), ['/a', '/d', '/large'])
  assert.deepEqual(await paths('/', { depth: 2 }), ['/a', '/a/b.txt', '/d', '/large'])
  assert.equal((await volume.getInfo('/a', at)).type, 'directory')
  assert.equal((await volume.updateMetadata('/d', { uid: 7, mode: 0o750 }, at)).uid, 7)
  await volume.remove('/a', at)
  assert.equal(await volume.exists('/a/b.txt', at), false)
  const lost = { name: /VolumePathNotFoundError|NotFoundError/ }
  for (const f of [() => volume.list('/no', at), () => volume.makeDir('/no/d', at), () => volume.getInfo('/no', at),
    () => volume.updateMetadata('/no', { mode: 0o600 }, at), () => volume.readFile('/no', at),
    () => volume.readFile('/no', { format: 'stream', ...at }), () => volume.writeFile('/no/f', 'data', at), () => volume.remove('/no', at)]) {
    await assert.rejects(f, lost, String(f))
  }
  await assert.rejects(volume.makeDir('/d', at), /409/)
  const other = new Volume(made.volumeId, 'mine', 'of the volume') // as one has it that was made elsewhere
  await assert.rejects(other.list('/', at), /token of the volume/)
  assert.equal(await Volume.destroy(made.volumeId), true)
  assert.equal(await Volume.destroy(made.volumeId), false)
  for (const f of [() => Volume.connect(made.volumeId), () => Volume.getInfo(made.volumeId), () => volume.list('/', at)]) {
    await assert.rejects(f, /not found/, String(f))
  }
}

async function secrets() {
  assert.equal(Secret.fill('rest-mjs'), '${e2b.secrets.rest-mjs}') // which asks nobody
  assert.throws(() => Secret.fill('{}'))
  assert.ok(Secret.iamToken({ audience: 'a', tokenType: 'JWT-SVID' }))
  const made = await Secret.create('rest-mjs', 'a value', { metadata: { for: 'tests' } })
  assert.deepEqual([made.name, made.version, made.metadata], ['rest-mjs', 1, { for: 'tests' }])
  await assert.rejects(Secret.create('rest-mjs', 'v'), /409/)
  await assert.rejects(Secret.create('no.name', 'v'), /400/)
  assert.equal((await Secret.getInfo(made.secretId)).name, 'rest-mjs')
  assert.equal((await Secret.update('rest-mjs', 'another')).version, 2)
  await Secret.create('rest-mjs-2', 'v')
  const pages = Secret.list({ limit: 1 })
  const names = []
  while (pages.hasNext) names.push(...(await pages.nextItems()).map((i) => i.name))
  assert.deepEqual(names.sort(), ['rest-mjs', 'rest-mjs-2'])
  assert.equal(pages.nextToken, undefined)
  await assert.rejects(pages.nextItems())
  await assert.rejects(Secret.list({ nextToken: 'wrong' }).nextItems(), /400/)
  for (const key of names) {
    assert.equal(await Secret.exists(key), true)
    assert.equal(await Secret.destroy(key), true)
    assert.equal(await Secret.destroy(key), false)
    assert.equal(await Secret.exists(key), false)
  }
  await assert.rejects(Secret.getInfo('rest-mjs'), SecretNotFoundError)
  await assert.rejects(Secret.update('rest-mjs', 'v'), SecretNotFoundError)
}

async function git(s) {
  const [r, remote] = [base + '/jsrepo', base + '/jsremote.git']
  if ((await s.commands.run('command -v git || true')).stdout === '') return
  await s.git.init(remote, { bare: true })
  await s.git.init(r, { initialBranch: 'main' })
  await s.git.configureUser('Me', 'me@example.com', { scope: 'local', path: r })
  await s.git.setConfig('core.abbrev', '12', { scope: 'local', path: r })
  assert.equal(await s.git.getConfig('core.abbrev', { scope: 'local', path: r }), '12')
  await s.files.write(r + '/a.txt', 'a')
  await s.git.add(r)
  await s.git.commit(r, 'first')
  await s.git.createBranch(r, 'other')
  await s.git.checkoutBranch(r, 'main')
  assert.deepEqual((await s.git.branches(r)).branches.sort(), ['main', 'other'])
  await s.git.deleteBranch(r, 'other', { force: true })
  await s.git.remoteAdd(r, 'origin', remote)
  assert.equal(await s.git.remoteGet(r, 'origin'), remote)
  await s.git.push(r, { remote: 'origin', branch: 'main', setUpstream: true })
  await s.git.clone(remote, { path: base + '/jsclone', branch: 'main' })
  await s.files.write(r + '/a.txt', 'b')
  await s.git.add(r)
  await s.git.reset(r)
  await s.git.restore(r, { paths: ['a.txt'] })
  assert.equal((await s.git.status(r)).isClean, true)
  await s.git.pull(base + '/jsclone')
  await s.git.dangerouslyAuthenticate({ username: 'me', password: 'secret', host: 'git.example.com' })
  for (const f of [() => s.git.status('/'), () => s.git.add('/'), () => s.git.branches('/'),
    () => s.git.push(r, { remote: 'none', branch: 'main' }), () => s.git.pull(base + '/none'),
    () => s.git.createBranch(r, 'main'), () => s.git.deleteBranch(r, 'none'), () => s.git.init(r + '/a.txt'),
    () => s.git.remoteAdd(r, 'origin', base + '/other.git'), () => s.git.reset(r, { target: 'none' }),
    () => s.git.restore(r, { paths: ['none.txt'] }),
    () => s.git.setConfig('nosection', 'x', { scope: 'local', path: r }),
    () => s.git.configureUser('', ''), () => s.git.dangerouslyAuthenticate({ username: 'me', password: '' })]) {
    await assert.rejects(f, undefined, String(f))
  }
  assert.equal(await s.git.remoteGet(r, 'none'), undefined)
  await assert.rejects(s.git.commit(r, 'nothing to commit'))
  await assert.rejects(s.git.clone(base + '/none.git', { path: base + '/never' }))
  await assert.rejects(s.git.checkoutBranch(r, 'none'))
}

const s = await Sandbox.create(template, { timeoutMs: 300_000 })
let failed = 0
for (const f of [commands, files, about, volumes, secrets, git]) {
  try {
    await f(s)
    console.log('ok  ', f.name)
  } catch (e) {
    failed++
    console.log('FAIL', f.name, e)
  }
}
await s.kill()
process.exit(failed ? 1 : 0)
