// Package forkcmd is what programs in a guest use to fork it: the commands
// forkd-fork, forkd-wait and forkd-exit, which are the agent's own program under
// other names, and the Python module forkd. It owns their behaviour and their
// places in the guest's file system; the calls themselves are forkcall's. The
// trap: a process that calls fork is copied with all its machine, so that what
// the caller does before and after the call is done in each copy.
package forkcmd
