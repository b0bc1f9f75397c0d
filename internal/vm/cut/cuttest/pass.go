// Package cuttest takes part in consistent cuts (package cut) for fake VMMs, which have no guest to pause. It follows
// the order of a real capture: it reports that it is ready, waits for the pause, and waits until all are paused. Only
// tests import it. Beware: a fake that never calls Pass breaks the cut for all others.
package cuttest

import (
	"errors"
	"os"
	"time"

	"github.com/forkd/forkd/internal/vm/cut"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Pass takes part in the cut of an end, if there is one, and closes it.
func Pass(f *os.File) error {
	if f == nil {
		return nil
	}
	defer f.Close()
	m := cut.Join(f)
	if err := m.Ready(); err != nil {
		return err
	}
	if now, err := m.Pause(time.Minute); err != nil || !now {
		return errors.Join(vmm.ErrCut, err)
	}
	if err := m.Paused(); err != nil {
		return err
	}
	return m.Done()
}
