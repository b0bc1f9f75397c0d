// Package keys keeps API keys: who may do what, for how long and how much of it. It makes
// them, hashes them, finds the key that a text is, and keeps all of them in one file. It
// knows no HTTP and no engine; package httpapi asks it who a request is from, and package
// tenancy what a key's quotas are. The trap: a key's text is told once, by Create and
// Rotate, and is nowhere else: neither in the file nor in an error nor in a log.
package keys
