package framelink

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	a, b, err := unixfd.Pair(unix.SOCK_SEQPACKET, "link")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	x, err := net.FileConn(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := net.FileConn(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); y.Close() })
	return x.(*net.UnixConn), y.(*net.UnixConn)
}

func writer(t *testing.T, c *net.UnixConn, b *Budget) *Writer {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	w := New(raw, b)
	t.Cleanup(func() { c.Close(); w.Close() })
	return w
}

// A burst that the socket does not take arrives whole and in order.
func TestABurstWaits(t *testing.T) {
	ours, theirs := pair(t)
	budget := NewBudget(1 << 20)
	w := writer(t, ours, budget)
	const size, frames = 60000, 10
	for i := range byte(frames) {
		w.Send([]byte{i}, make([]byte, size-1))
	}
	buf := make([]byte, 70000)
	theirs.SetReadDeadline(time.Now().Add(20 * time.Second))
	for i := range byte(frames) {
		n, err := theirs.Read(buf)
		if err != nil || n != size || buf[0] != i {
			t.Fatalf("message %d is %d bytes of number %d, %v", i, n, buf[0], err)
		}
	}
	w.wg.Wait()
	if budget.used.Load() != 0 || w.bytes != 0 {
		t.Errorf("%d bytes are taken from the budget, %d wait", budget.used.Load(), w.bytes)
	}
}

// A receiver that never reads costs no more than the queue, and no more than the budget of all.
func TestAReceiverThatDoesNotReadIsBounded(t *testing.T) {
	ours, _ := pair(t)
	budget := NewBudget(200 << 10)
	w := writer(t, ours, budget)
	for range 1000 {
		w.Send(make([]byte, 60000))
	}
	w.mu.Lock()
	waits := w.bytes
	w.mu.Unlock()
	if used := budget.used.Load(); used > 200<<10 || int64(waits) != used || waits == 0 {
		t.Errorf("%d bytes wait, %d are taken from the budget", waits, used)
	}
	ours.Close()
	w.Close()
	if used := budget.used.Load(); used != 0 {
		t.Errorf("after the end %d bytes are taken", used)
	}
	w.Send([]byte("late"))
}
