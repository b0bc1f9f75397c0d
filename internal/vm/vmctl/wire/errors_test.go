package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// arrived returns an error as it arrives at the other end.
func arrived(t *testing.T, err error) error {
	t.Helper()
	b, jsonErr := json.Marshal(EncodeError(err))
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	var e Error
	if jsonErr = json.Unmarshal(b, &e); jsonErr != nil {
		t.Fatal(jsonErr)
	}
	return e.Err()
}

// errors.Is gives the same results at both ends.
func TestErrorsArriveWithTheirCauses(t *testing.T) {
	all := []error{vmm.ErrState, vmm.ErrPause, vmm.ErrNoRoom, vmm.ErrLost, errors.ErrUnsupported, unix.ENOSPC, unix.ENOMEM, fs.ErrNotExist}
	for _, err := range append([]error{
		fmt.Errorf("%w: disk 1: %w", vmm.ErrNoRoom, unix.ENOSPC),
		fmt.Errorf("capture disk: %w", fmt.Errorf("%w: %w", vmm.ErrLost, &fs.PathError{Op: "write", Path: "own", Err: unix.EIO})),
		errors.New("no more than words: " + vmm.ErrNoRoom.Error() + ": no space left on device"),
	}, all...) {
		got := arrived(t, err)
		if got.Error() != err.Error() {
			t.Errorf("%q arrives as %q", err, got)
		}
		for _, what := range all {
			if what != fs.ErrNotExist && errors.Is(got, what) != errors.Is(err, what) {
				t.Errorf("%q: is %q: %v, was %v", err, what, errors.Is(got, what), errors.Is(err, what))
			}
		}
	}
	if err := arrived(t, &fs.PathError{Op: "open", Path: "x", Err: unix.ENOENT}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not %v", err, fs.ErrNotExist)
	}
}

// A VMM taken over by its guest may send anything as an error.
func TestHostileErrors(t *testing.T) {
	for _, e := range []Error{
		{}, {Errno: -1}, {Errno: 1 << 40}, {Codes: []string{"", "dance", "state"}, Errno: int(unix.ENOSPC)}, {Text: "\x1b[2J"},
	} {
		err := e.Err()
		if strings.ContainsRune(err.Error(), 0x1b) || errors.Is(err, vmm.ErrLost) {
			t.Errorf("%+v is %q", e, err)
		}
	}
}

// A text of any length, in any JSON encoding, fits into an answer.
func TestLongTextsFit(t *testing.T) {
	long := strings.Repeat("\x01", 5000)
	health := ClipHealth(vmm.Health{Full: long, Lost: long, Hang: long})
	st := Status{Version, vmm.Status{State: vmm.StateStalled, OverlayGeneration: []int{1 << 30, 1 << 30, 1 << 30}, Health: health}}
	body, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	every := EncodeError(fmt.Errorf("%s %w %w %w %w %w", long, vmm.ErrState, vmm.ErrPause, vmm.ErrNoRoom, vmm.ErrLost, unix.ENOSPC))
	for _, m := range []Message{{ID: 1 << 62, Body: body}, {ID: 1 << 62, Error: every}} {
		if b, err := json.Marshal(m); err != nil || len(b) > MaxAnswer {
			t.Errorf("%d bytes, of at most %d (%v)", len(b), MaxAnswer, err)
		}
	}
}
