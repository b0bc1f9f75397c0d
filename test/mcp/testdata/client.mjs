// Uses forkd's MCP server with the official TypeScript package, over stdio and HTTP; see client.py for the variables.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const forkd = process.env.MCP_TEST_FORKD
const snapshot = process.env.MCP_TEST_SNAPSHOT ?? 'py'
const token = '0123456789abcdef0123456789abcdef'

async function until(what, f) {
  for (const end = Date.now() + 60_000; !(await f());) {
    assert.ok(Date.now() < end, what)
    await new Promise((ok) => setTimeout(ok, 100))
  }
}

function stdio() {
  const env = Object.fromEntries(Object.entries(process.env).filter(([k]) => k.startsWith('FORKD_')))
  return { transport: new StdioClientTransport({ command: forkd, args: ['mcp'], env: { ...process.env, ...env } }), end() {} }
}

async function http() {
  const p = spawn(forkd, ['mcp', '--listen', '127.0.0.1:0'], {
    env: { ...process.env, FORKD_MCP_TOKEN: token }, stdio: ['ignore', 'ignore', 'pipe'],
  })
  const line = await new Promise((ok) => p.stderr.once('data', (b) => ok(String(b))))
  const url = new URL(line.match(/http:\/\/\S+/)[0])
  const init = { headers: { Authorization: `Bearer ${token}` } }
  return {
    transport: new StreamableHTTPClientTransport(url, { requestInit: init }),
    async end() {
      p.kill()
      assert.equal(await new Promise((ok) => p.once('exit', ok)), 0)
    },
  }
}

async function use(name, { transport, end }) {
  const began = Date.now()
  const c = new Client({ name: 'test', version: '1' })
  await c.connect(transport)
  const call = async (tool, args, options) => {
    const r = await c.callTool({ name: tool, arguments: args }, undefined, options)
    assert.ok(!r.isError, `${tool}: ${JSON.stringify(r.content)}`)
    return r.structuredContent
  }
  const { tools } = await c.listTools()
  assert.ok(tools.length >= 25 && tools.every((t) => t.outputSchema && t.annotations))
  assert.ok(tools.find((t) => t.name === 'kill_sandbox').annotations.destructiveHint)
  const told = []
  const made = await call('spawn_sandboxes', { snapshot_tag: snapshot, n: 2 }, { onprogress: (p) => told.push(p) })
  const ids = made.sandboxes.map((s) => s.id)
  assert.equal(ids.length, 2)
  assert.ok(told.length > 0) // the last report may come after the answer, which the client then drops
  const ran = await call('exec_command', { sandbox_id: ids[0], command: 'echo größe; cat /etc/hostname' })
  assert.ok(ran.stdout.startsWith('größe\n'))
  await call('eval_code', { sandbox_id: ids[0], code: 'z = 20' })
  const branched = await call('branch_sandbox', { sandbox_id: ids[0], n: 1 })
  const child = branched.sandboxes[0].id
  assert.equal((await call('eval_code', { sandbox_id: child, code: 'z + 1' })).result, '21')
  await call('write_file', { sandbox_id: child, path: '/tmp/a', content_base64: Buffer.from([255, 0, 1]).toString('base64') })
  const file = (await c.readResource({ uri: `forkd://sandbox/${child}/file/tmp/a` })).contents[0]
  assert.deepEqual([...Buffer.from(file.blob, 'base64')], [255, 0, 1])
  const failed = await c.callTool({ name: 'get_sandbox', arguments: { sandbox_id: 'sb-none' } })
  assert.ok(failed.isError && failed._meta['forkd.dev/code'] === 'not_found')
  const prompt = await c.getPrompt({ name: 'branch_before_risk', arguments: { sandbox_id: child, step: 'rm -rf /tmp' } })
  assert.match(prompt.messages[0].content.text, /rm -rf/)
  const stop = new AbortController()
  setTimeout(() => stop.abort(), 1000)
  await assert.rejects(call('eval_code', { sandbox_id: child, code: 'import time; time.sleep(120)' }, { signal: stop.signal }))
  assert.equal((await call('eval_code', { sandbox_id: child, code: '6*7' })).result, '42')
  await call('kill_sandbox', { sandbox_id: ids[0] })
  await call('kill_sandbox', { sandbox_id: child })
  await call('delete_snapshot', { tag: branched.snapshot.tag })
  if (transport.terminateSession) await transport.terminateSession()
  await c.close()
  await until('its sandboxes end with it', () => !String(execFileSync(forkd, ['-q', 'ps'])).includes(ids[1]))
  await end()
  console.log(`ok   ${name} ${(Date.now() - began) / 1000} s`)
}

await use('stdio', stdio())
await use('http', await http())
