// Package operation runs a daemon with real VMs through the events of a long operation: work, kills of each
// process, drains, upgrades, a full disk. A real Prometheus scrapes the daemon and evaluates the alert rules
// with their times divided by a factor. OpenTelemetry's own receiver gets the traces. `make test-operation`
// runs it; it is no part of `make test`.
package operation
