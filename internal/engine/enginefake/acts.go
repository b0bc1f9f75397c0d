package enginefake

import (
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Acts records the reported actions that had no request.
type Acts struct {
	Mu  sync.Mutex // guards All
	All []sandbox.Act
}

// Add is a sandbox.Acts.
func (a *Acts) Add(act sandbox.Act) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.All = append(a.All, act)
}

// Of returns the actions on a sandbox, as "action by".
func (a *Acts) Of(id string) (out []string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	for _, act := range a.All {
		if act.Of.ID == id {
			out = append(out, act.Action+" "+act.By)
		}
	}
	return out
}
