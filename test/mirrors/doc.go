// Package mirrors makes places that programs are installed from: a signed Debian repository, a
// PyPI index and an npm registry. Each has the same two packages, of which Hello needs Words, made
// here of a few lines. It owns their formats, and an Authority whose certificates they may have;
// where they listen and who may reach them is the tests'. Only tests import it. The trap: guests'
// clocks may be behind the host's, so all that has a time is a day old.
package mirrors
