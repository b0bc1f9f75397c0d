// Package forkcmd lets programs in a guest fork it: with the commands forkd-fork, forkd-wait and
// forkd-exit, which are the agent's own program under other names, and with the Python module
// forkd. It implements them and installs them in the guest's file system. Package forkcall handles
// the calls.
//
// A fork copies the calling process with its whole VM. So everything the caller does after the call
// happens in each copy.
package forkcmd
