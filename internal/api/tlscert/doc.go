// Package tlscert is the daemon's certificate: read from files and again when they change,
// or made once and told apart by its fingerprint. It listens on nothing. The trap: a
// certificate that was made here is signed by itself, and whoever does not pin its
// fingerprint has no reason to trust it.
package tlscert
