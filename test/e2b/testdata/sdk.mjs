// What a program does with E2B's JavaScript package; sync.py says what the variables are.
import assert from 'node:assert/strict'
import { CommandExitError, NotFoundError, Sandbox, TimeoutError } from 'e2b'

const template = process.env.E2B_TEST_TEMPLATE
const base = process.env.E2B_TEST_DIR

async function commands(s) {
  const r = await s.commands.run('echo out; echo err >&2')
  assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['out\n', 'err\n', 0])
  await assert.rejects(s.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
  assert.equal((await s.commands.run('echo $CREATED $MINE', { envs: { MINE: '1' } })).stdout, '2 1\n')
  await assert.rejects(s.commands.run('sleep 60', { timeoutMs: 1000 }), TimeoutError)
  const h = await s.commands.run('read line; echo got $line', { background: true, stdin: true })
  assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
  await s.commands.sendStdin(h.pid, 'it\n')
  assert.equal((await h.wait()).stdout, 'got it\n')
  const long = await s.commands.run('sleep 300', { background: true })
  assert.equal(await s.commands.kill(long.pid), true)
  await assert.rejects(long.wait()) // a killed process is listed until it has ended
  assert.equal(await s.commands.kill(long.pid), false)
}

async function files(s) {
  const d = base + '/js'
  await s.files.write(d + '/a/b.txt', 'text ä')
  assert.equal(await s.files.read(d + '/a/b.txt'), 'text ä')
  const blob = new Uint8Array(3 << 20).fill(7)
  await s.files.write(d + '/blob', blob.buffer)
  assert.equal((await s.files.read(d + '/blob', { format: 'bytes' })).length, blob.length)
  await s.files.write([{ path: d + '/one', data: '1' }, { path: d + '/sub/two', data: '2' }])
  assert.deepEqual((await s.files.list(d)).map((e) => e.name).sort(), ['a', 'blob', 'one', 'sub'])
  assert.equal(await s.files.makeDir(d + '/new'), true)
  assert.equal(await s.files.makeDir(d + '/new'), false)
  await s.files.rename(d + '/one', d + '/new/uno')
  assert.equal(await s.files.exists(d + '/one'), false)
  assert.equal((await s.files.getInfo(d + '/new/uno')).size, 1)
  await s.files.remove(d + '/new')
  await assert.rejects(s.files.read(d + '/none'), NotFoundError)
  const seen = new Promise((ok) => {
    s.files.watchDir(d, (ev) => ev.name === 'seen' && ok()).then(() => s.files.write(d + '/seen', 'x'))
  })
  await seen
}

async function terminal(s) {
  let out = ''
  const h = await s.pty.create({ cols: 80, rows: 24, onData: (b) => { out += new TextDecoder().decode(b) } })
  await s.pty.sendInput(h.pid, new TextEncoder().encode('echo in-$((40+2)); exit 0\n'))
  await h.wait()
  assert.match(out, /in-42/)
}

async function life(s) {
  assert.equal(await s.isRunning(), true)
  await s.setTimeout(500_000)
  const info = await s.getInfo()
  assert.deepEqual(info.metadata, { who: 'js & co' })
  const page = Sandbox.list({ query: { metadata: { who: 'js & co' } } })
  assert.deepEqual((await page.nextItems()).map((x) => x.sandboxId), [s.sandboxId])
  const other = await Sandbox.connect(s.sandboxId)
  assert.equal((await other.commands.run('echo again')).stdout, 'again\n')
  const url = await s.downloadUrl(base + '/js/a/b.txt')
  assert.equal(await (await fetch(url)).text(), 'text ä')
}

async function kill(s) {
  const h = await s.commands.run('sleep 300', { background: true })
  assert.equal(await s.kill(), true)
  await assert.rejects(h.wait())
  assert.equal(await s.isRunning(), false)
  await assert.rejects(s.commands.list())
  await assert.rejects(Sandbox.connect(s.sandboxId))
}

const s = await Sandbox.create(template, { timeoutMs: 300_000, metadata: { who: 'js & co' }, envs: { CREATED: '2' } })
let failed = 0
for (const f of [commands, files, terminal, life, kill]) {
  try {
    await f(s)
    console.log('ok  ', f.name)
  } catch (e) {
    failed++
    console.log('FAIL', f.name, e)
  }
}
process.exit(failed ? 1 : 0)
