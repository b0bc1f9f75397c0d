// Package forkcmd lets programs in a guest fork it: with the commands forkd-fork, forkd-wait and
// forkd-exit, which are the agent's own program under other names, and with the Python module
// forkd. It implements them and installs them in the guest's file system. Package forkcall handles
// the calls. The command forkd-token, for identity tokens, is one of these names, too; its calls are
// those of package tokencall.
//
// A fork copies the calling process with its whole VM. So each copy has the effects of everything
// that the caller did before the call, and does everything after it.
package forkcmd
