// Package client is the Go SDK of forkd's REST API: one method per route, and
// on top of the agent route programs with streams and terminals, and files. It
// owns its connections; it starts no daemon and knows no command line. Any Go
// program may import it. Every failure that the daemon reports is an *Error
// with a stable Code. The trap: a method that streams (ExecStream, Upload,
// Download) lasts as long as its context, so give it one that ends.
package client
