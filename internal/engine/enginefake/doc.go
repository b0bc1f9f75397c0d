// Package enginefake is what the tests of the engine's rooms stand on: hosts with engines, and VMMs
// that are processes of the test binary. Such a VMM has sockets and a guest's agent that answers,
// and needs no KVM. A test makes it misbehave with tokens, see Host.Fault, and asks its guest by
// evaluations. The package has a fake forkd-net and fake taps, too, and daemons that are killed at
// a step of their work. The trap: each test package needs a TestMain that calls Main.
package enginefake
