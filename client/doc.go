// Package client is the Go SDK of forkd's REST API. It has one method per route. On top of the
// agent route it runs programs with streams and terminals, and copies files. It owns its
// connections. It does not start a daemon, and is independent of the command line. Any Go program
// may import it. Every failure the daemon reports is an *Error with a stable Code. The trap: a
// method that streams (ExecStream, Upload, Download) lasts as long as its context, so pass a
// context with an end.
package client
