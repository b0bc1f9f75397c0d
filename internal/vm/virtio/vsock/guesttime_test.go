package vsock

import (
	"io"
	"testing"
	"time"
)

func TestGuestTimeIsWhatTheGuestTakesToAnswer(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	host, c := dialGuest(t, dev, g, 80)
	const wait = 50 * time.Millisecond
	p := make([]byte, 5)
	start := time.Now()
	for range 2 {
		time.Sleep(wait) // elapses: the host's own time, which must not count
		_, _ = host.Write([]byte("hello"))
		if _, err := io.ReadFull(c, p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait) // elapses: the guest's time, which must
		_, _ = c.Write(p)
		if _, err := io.ReadFull(host, p); err != nil {
			t.Fatal(err)
		}
	}
	before := dev.GuestTime()
	if before < 2*wait || before > time.Since(start)-2*wait {
		t.Errorf("it is %s of %s, want %s and no more than what the host did not wait", before, time.Since(start), 2*wait)
	}
	_, _ = c.Write(p) // unrequested
	if _, err := io.ReadFull(host, p); err != nil {
		t.Fatal(err)
	}
	if after := dev.GuestTime(); after != before {
		t.Errorf("it grew by %s without a question", after-before)
	}
}
