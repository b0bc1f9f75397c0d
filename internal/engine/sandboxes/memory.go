package sandboxes

import (
	"github.com/forkd/forkd/internal/hostproc"
	"github.com/forkd/forkd/internal/sandbox"
)

// WithMemory fills in what each sandbox's process has for itself: nothing for one that
// has ended, or does just now.
func WithMemory(list []sandbox.Info) []sandbox.Info {
	for i := range list {
		if list[i].PID == 0 {
			continue
		}
		if n, err := hostproc.OwnMemory(list[i].PID); err == nil {
			list[i].OwnMemory = n
		}
	}
	return list
}
