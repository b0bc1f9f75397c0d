package op

import (
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/store/snapshot"
)

// maxState limits the VMM state in a snapshot, in bytes. Package snapshot has the same limit. A
// state has some ten thousand bytes.
const maxState = 64 << 20

// keepState copies the state written by the VMM into the snapshot. The VMM could write to its own
// file for as long as it lives.
func (w *branchOp) keepState() error {
	to, err := w.draft.File(snapshot.StateFile)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, io.NewSectionReader(w.state, 0, maxState+1))
	if err != nil {
		return fmt.Errorf("copy the capture's state: %w", err)
	}
	if n > maxState {
		return fmt.Errorf("the capture's state has more than %d bytes", maxState)
	}
	return nil
}
