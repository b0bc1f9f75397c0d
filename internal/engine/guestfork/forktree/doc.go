// Package forktree holds the records of the children a sandbox made (Family): the calls that made
// them, the running children, and the ended ones waiting to be collected. It owns the files in
// which ended children outlive the daemon. It starts and ends no VMs, and knows no sockets.
// sandbox.TreeLimits limits the size and depth of trees. Only package guestfork uses it. A guest
// decides how often each function is called, so all stored data has a limit.
package forktree
