package cut

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// Patience limits the wait of a paused guest for the others' pauses.
const Patience = 5 * time.Second

// Member is a VMM's end of a cut.
type Member struct{ f *os.File }

// Join returns the member of an end. The caller still owns the file.
func Join(f *os.File) *Member { return &Member{f} }

// Ready reports that the guest can be paused. Its guest runs on.
func (m *Member) Ready() error { return m.send(ready) }

// Pause waits for the order to pause, for at most limit. It returns false if the time has passed.
func (m *Member) Pause(limit time.Duration) (bool, error) {
	err := m.await(pause, limit)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// Paused reports that the guest is paused.
func (m *Member) Paused() error { return m.send(paused) }

// Done waits until all guests are paused. After an error the guest resumes, and its capture has failed.
func (m *Member) Done() error {
	err := m.await(done, Patience)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: it was not paused after %s", vmm.ErrCut, Patience)
	}
	return err
}

func (m *Member) send(b byte) error {
	if _, err := m.f.Write([]byte{b}); err != nil {
		return fmt.Errorf("%w: %v", vmm.ErrCut, err)
	}
	return nil
}

func (m *Member) await(want byte, limit time.Duration) error {
	if err := m.f.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	err := expect(m.f, want)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %v", vmm.ErrCut, err)
}
