// Package asuser does file work with the rights of one of the guest's users, as
// if a process of that user did it. It owns the change of a thread's
// credentials; what is done with them is the caller's. Only the agent's file
// services use it. The trap: the thread is still one of the agent's, so
// /proc/self is the agent's own and its magic links open to the thread; paths
// must be opened with RESOLVE_NO_MAGICLINKS.
package asuser

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/forkd/forkd/internal/guest/agent/account"
)

// threads holds a token for each thread that has another user's rights: one that
// waits for a slow caller is a thread all the same, and a process that has too
// many of them ends.
var threads = make(chan struct{}, 256)

// Do runs f with u's user id, group id and groups and without capabilities, and
// waits for its end. For root, f runs as it is. f must not start programs, nor call Do. What
// goroutines that f starts do is done with the agent's rights.
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
		// Never unlocked: the thread ends with this goroutine, and nobody else gets
		// it. The runtime makes no threads from a locked one.
		runtime.LockOSThread()
		if res.err = become(u); res.err == nil {
			res.err = f()
		}
		returned = true
	}()
	res := <-ended
	if res.panic != nil {
		panic(res.panic) // where the caller's recovers can see it
	}
	return res.err
}
