// Package forktree holds what a sandbox knows of the children it made (Family): which
// calls made them, which run, which have ended and wait to be collected. It owns those
// facts and the files in which ended children outlive the daemon; it starts and ends no
// machine, and knows no socket. How large and deep trees may grow is sandbox.TreeLimits.
// Only package guestfork uses it. The trap: a guest decides how often each of these is
// called, so that whatever is kept has a limit.
package forktree
