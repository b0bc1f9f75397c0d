// Package asuser does file operations with the rights of one of the guest's users, as if a process
// of that user did them. It changes the credentials of a thread; the caller does the file
// operations. Only the agent's file services use it.
//
// The thread still belongs to the agent. So /proc/self is the agent's own, and the thread may open
// its magic links. Open paths with RESOLVE_NO_MAGICLINKS.
package asuser

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/forkd/forkd/internal/guest/agent/account"
)

// threads limits the threads with another user's rights. Such a thread also blocks while it waits
// for a slow caller, and a process with too many threads dies.
var threads = make(chan struct{}, 256)

// Do runs f with u's user id, group id and groups and without capabilities, and waits for its end.
// If u is the agent's own user, f runs unchanged. f must not start programs or call Do. Goroutines
// started by f have the agent's rights.
func Do(u account.User, f func() error) error {
	switch self := os.Getuid(); {
	case u.UID == self:
		return f()
	case self != 0:
		return fmt.Errorf("act as user '%s': the agent is not root: %w", u.Name, fs.ErrPermission)
	}
	type result struct {
		err   error
		panic any
	}
	threads <- struct{}{}
	defer func() { <-threads }()
	ended := make(chan result, 1)
	go func() {
		var res result
		returned := false
		defer func() {
			if p := recover(); !returned {
				res.panic = p
			}
			ended <- res
		}()
		// The thread is never unlocked: it ends with this goroutine, so no other goroutine runs on
		// it. The runtime does not start threads from a locked thread.
		runtime.LockOSThread()
		if res.err = become(u); res.err == nil {
			res.err = f()
		}
		returned = true
	}()
	res := <-ended
	if res.panic != nil {
		panic(res.panic) // so that the caller can recover it
	}
	return res.err
}
