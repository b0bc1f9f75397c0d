package netwire_test

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netwire"
)

// ends returns forkd-net's end of a wire, and the VMM's.
func ends(t *testing.T) (*netwire.End, *os.File) {
	t.Helper()
	a, b, err := netwire.DatagramFDs()
	if err != nil {
		t.Fatal(err)
	}
	e, err := netwire.TakeEnd(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	unix.SetNonblock(b, true)
	theirs := os.NewFile(uintptr(b), "theirs")
	t.Cleanup(func() { theirs.Close() })
	return e, theirs
}

var refused = netwire.Message{Kind: netwire.Refused, ID: 7, Reason: netwire.Reset}

func TestAnEndReceivesWithoutWaiting(t *testing.T) {
	e, theirs := ends(t)
	if _, err := e.Receive(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("nothing was sent, and it is %v", err)
	}
	cancel, err := netwire.Message{Kind: netwire.Cancel, ID: 7}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	theirs.Write(cancel[:])
	if m, err := e.Receive(); err != nil || m.Kind != netwire.Cancel || m.ID != 7 {
		t.Errorf("%+v, %v", m, err)
	}
	theirs.Write(append(cancel[:], 0))
	if _, err := e.Receive(); !errors.Is(err, netwire.ErrMessage) {
		t.Errorf("a longer one is %v", err)
	}
	theirs.Close()
	if _, err := e.Receive(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
}

// fill sends until there is no room, and returns the number of messages.
func fill(t *testing.T, e *netwire.End) (n int) {
	t.Helper()
	for {
		switch err := e.TrySend(refused); {
		case errors.Is(err, unix.EAGAIN):
			return n
		case err != nil:
			t.Fatal(err)
		}
		n++
	}
}

func TestSendWaitsForRoom(t *testing.T) {
	e, theirs := ends(t)
	n := fill(t, e)
	sent := make(chan error, 1)
	go func() { sent <- e.Send(refused) }()
	buf := make([]byte, netwire.Size+1)
	for range n + 1 {
		theirs.SetReadDeadline(time.Now().Add(20 * time.Second))
		if got, err := theirs.Read(buf); got != netwire.Size || err != nil {
			t.Fatalf("%d bytes, %v", got, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestCloseEndsASenderThatWaits(t *testing.T) {
	e, _ := ends(t)
	fill(t, e)
	sent := make(chan error, 1)
	go func() { sent <- e.Send(refused) }()
	e.Close()
	if err := <-sent; err == nil {
		t.Error("it was sent")
	}
	if err := e.SendFD(1, 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTakeEndRefusesWhatIsNoWire(t *testing.T) {
	a, b, err := netwire.StreamFDs()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(b)
	if _, err := netwire.TakeEnd(a); err == nil {
		t.Error("a stream was taken")
	}
	if err := unix.Close(a); err == nil {
		t.Error("it was left open")
	}
}
