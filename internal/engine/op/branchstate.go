package op

import (
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/store/snapshot"
)

// maxState bounds the state that a snapshot takes from a VMM, in bytes; package
// snapshot has the same limit. A state has some ten thousand.
const maxState = 64 << 20

// keepState copies the state that the VMM has written into the snapshot: the VMM
// can go on writing to the file that it has for as long as it lives.
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
