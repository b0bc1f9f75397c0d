// What only a VM shows, with E2B's JavaScript package; see vm.py.
import assert from 'node:assert/strict'
import { NotFoundError, Sandbox } from 'e2b'

const template = process.env.E2B_TEST_TEMPLATE

async function until(what, f) {
  for (const end = Date.now() + 60_000; !(await f());) {
    assert.ok(Date.now() < end, what)
    await new Promise((ok) => setTimeout(ok, 100))
  }
}

async function users(s) {
  assert.equal((await s.commands.run('whoami')).stdout, 'user\n')
  assert.equal((await s.commands.run('whoami', { user: 'root' })).stdout, 'root\n')
}

async function large(s) {
  const blob = new Uint8Array(8 << 20).map((_, i) => i * 31)
  await s.files.write('large', new Blob([blob]))
  let seen = 0
  for await (const piece of await s.files.read('large', { format: 'stream' })) {
    for (let i = 0; i < piece.length; i += 4093) assert.equal(piece[i], ((seen + i) * 31) & 255)
    seen += piece.length
  }
  assert.equal(seen, blob.length)
}

async function computes(s) {
  const h = await s.commands.run('n=0; while :; do n=$((n+1)); echo $n > /tmp/n; done', { background: true, timeoutMs: 0 })
  const ended = assert.rejects(h.wait())
  const n = async () => Number((await s.commands.run('cat /tmp/n || echo 0')).stdout.trim())
  await until('it counts', async () => (await n()) > 10)
  await (s.pause ?? s.betaPause).call(s)
  assert.equal((await s.getInfo()).state, 'paused')
  await ended
  const again = await Sandbox.connect(s.sandboxId)
  const then = await n()
  assert.ok((await again.commands.list()).some((p) => p.pid === h.pid))
  await until('it counts on', async () => (await n()) > then)
  assert.equal(await again.commands.kill(h.pid), true)
}

async function children(s) {
  await s.files.write('same', 'of one instant')
  const made = s.fork ? await s.fork({ count: 2 }) : []
  const snap = await s.createSnapshot()
  made.push(await Sandbox.create(snap.snapshotId))
  for (const f of made) {
    const child = f.sandbox ?? f
    assert.equal(await child.files.read('same'), 'of one instant')
    await child.kill()
  }
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
}

async function ends(s) {
  assert.ok((await s.getMetrics())[0].memTotal > 0)
  const short = await Sandbox.create(template, { timeoutMs: 2000 })
  await until('it ends', async () => !(await short.isRunning()))
  await assert.rejects(Sandbox.connect(short.sandboxId), NotFoundError)
  const made = await Promise.all(Array.from({ length: 5 }, () => Sandbox.create(template)))
  const said = await Promise.all(made.map(async (x, i) => (await x.commands.run(`echo ${i}`)).stdout))
  assert.deepEqual(said, made.map((_, i) => `${i}\n`))
  assert.deepEqual(await Promise.all(made.map((x) => x.kill())), made.map(() => true))
}

const s = await Sandbox.create(template, { timeoutMs: 600_000 })
let failed = 0
for (const f of [users, large, computes, children, ends]) {
  const began = Date.now()
  try {
    await f(s)
    console.log('ok  ', f.name, (Date.now() - began) / 1000, 's')
  } catch (e) {
    failed++
    console.log('FAIL', f.name, e)
  }
}
await s.kill()
process.exit(failed ? 1 : 0)
