package generation

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/vsock"
)

// guestAt is a guest with a given address.
type guestAt struct {
	cid uint32
	err error
}

func (g *guestAt) ContextID() (uint32, error) { return g.cid, g.err }

func TestChanged(t *testing.T) {
	broken := errors.New("no device")
	for _, tc := range []struct {
		name   string
		before guestAt
		after  guestAt
		become bool
		want   bool
	}{
		{"the same guest", guestAt{cid: 3}, guestAt{cid: 3}, false, false},
		{"another address", guestAt{cid: 3}, guestAt{cid: 4}, false, true},
		{"an identity at the same address", guestAt{cid: 3}, guestAt{cid: 3}, true, true},
		{"an address that cannot be read any more", guestAt{cid: 3}, guestAt{err: broken}, false, false},
		{"an address that could not be read before", guestAt{err: broken}, guestAt{cid: 3}, false, false},
		{"an identity without addresses", guestAt{err: broken}, guestAt{err: broken}, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := tc.before
			g := New(&at)
			ctx := g.Mark(t.Context())
			if Changed(ctx) {
				t.Error("changed at once")
			}
			at = tc.after
			if tc.become {
				g.Advance()
			}
			if got := Changed(ctx); got != tc.want {
				t.Errorf("got %v", got)
			}
			if Changed(g.Mark(t.Context())) {
				t.Error("a request that begins now is of another generation")
			}
		})
	}
}

func TestChangedWithoutAMark(t *testing.T) {
	if Changed(t.Context()) {
		t.Error("changed")
	}
}

// ended waits slightly longer than an ending context needs.
func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-time.After(50 * time.Millisecond):
		return false
	}
}

func TestOutlive(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cid     uint32
		outlive bool
	}{{"a caller that left", 3, false}, {"a clone", 4, true}} {
		t.Run(tc.name, func(t *testing.T) {
			at := guestAt{cid: 3}
			ctx, leave := context.WithCancel(New(&at).Mark(t.Context()))
			out, stop := Outlive(ctx)
			at.cid = tc.cid
			leave()
			if ended(out) == tc.outlive {
				t.Errorf("ended: %v", out.Err())
			}
			stop()
			if !ended(out) {
				t.Error("stop does not end it")
			}
		})
	}
}

func TestOutliveKeepsTheDeadline(t *testing.T) {
	at := guestAt{cid: 3}
	ctx, cancel := context.WithTimeout(New(&at).Mark(t.Context()), 10*time.Millisecond)
	defer cancel()
	out, stop := Outlive(ctx)
	defer stop()
	at.cid = 4
	<-out.Done()
	if out.Err() != context.DeadlineExceeded {
		t.Errorf("got %v", out.Err())
	}
}

func TestDevice(t *testing.T) {
	var d Device
	got, err := d.ContextID()
	if _, missing := os.Stat(devicePath); missing != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without a device: %v", err)
		}
	} else if want, werr := vsock.ContextID(); got != want || (err == nil) != (werr == nil) {
		t.Errorf("got %d, %v, want %d, %v", got, err, want, werr)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if _, err := d.ContextID(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
