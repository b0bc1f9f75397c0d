// Builds templates from a registry's images with E2B's package. templateregistry.py has more of it.
import assert from 'node:assert/strict'
import { BuildError, Template } from 'e2b'

const host = process.env.E2B_TEST_REGISTRY
const name = 'js-reg-' + Math.random().toString(36).slice(2, 10)
const never = 'never-' + name
const build = (t, name) => Template.build(t, name, { memoryMB: 256 })

await build(Template().fromImage(`${host}/open/tools:1`).runCmd('true'), name)
await build(Template().fromDockerfile(`FROM ${host}/open/tools:1\nENV A=b\nRUN test "$A" = b\nWORKDIR /tmp\nUSER root\n`), name + '-file')
await build(Template().fromImage(`${host}/private/tools:1`, { username: 'me', password: 'secret' }), name + '-private')
await build(Template().fromGCPRegistry(`${host}/google/tools:1`, { serviceAccountJSON: { type: 'service_account' } }), name + '-gcp')
const ecr = process.env.E2B_TEST_ECR // a registry of Amazon, if AWS has a stand-in
const keys = { accessKeyId: process.env.E2B_TEST_ECR_KEY, secretAccessKey: process.env.E2B_TEST_ECR_SECRET, region: 'eu-west-1' }
if (ecr) await build(Template().fromAWSRegistry(`${ecr}/amazon/tools:1`, keys), name + '-aws')
for (const [says, t] of [
  ...(ecr ? [['check awsSecretAccessKey', Template().fromAWSRegistry(`${ecr}/amazon/tools:1`, { ...keys, secretAccessKey: 'x' })]] : []),
  ['access denied', Template().fromImage(`${host}/private/tools:1`)],
  ['access denied', Template().fromImage(`${host}/private/tools:1`, { username: 'me', password: 'wrong' })],
  ['not found', Template().fromImage(`${host}/open/none:1`)],
]) {
  await assert.rejects(build(t, never), (e) => e instanceof BuildError && e.message.includes(says))
}
assert.equal(await Template.exists(never), false)
console.log('ok')
process.exit(0)
