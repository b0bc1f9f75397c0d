// Package mirrors makes sources for package managers: a signed Debian repository, a PyPI index and
// an npm registry. Each has the same two small packages, Hello and Words; Hello depends on Words.
// The package owns their formats, and an Authority for their certificates. The tests own their
// addresses and access to them. Only tests import it. The trap: guests' clocks may be behind the
// host's, so all timestamps are a day old.
package mirrors
