// Package tlscert provides the daemon's certificate. It reads it from files and again when they
// change, or makes a self-signed one once, which clients identify by its fingerprint. It does not
// listen. The trap: only the fingerprint makes a self-signed certificate trustworthy, so a client
// must pin it.
package tlscert
