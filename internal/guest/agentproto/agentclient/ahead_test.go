package agentclient

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// pipes dials pipes and keeps their other ends.
type pipes struct {
	dials int
	far   []net.Conn
	fail  error
}

func (p *pipes) dial(context.Context) (net.Conn, error) {
	p.dials++
	if p.fail != nil {
		return nil, p.fail
	}
	near, far := net.Pipe()
	p.far = append(p.far, far)
	return near, nil
}

// closedByOther fails unless the other end is closed soon.
func closedByOther(t *testing.T, far net.Conn) {
	t.Helper()
	if err := far.SetReadDeadline(time.Now().Add(10 * time.Second)); errors.Is(err, io.ErrClosedPipe) {
		return // it was closed before
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it is not closed: %v", err)
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("it is not closed")
	}
}

func TestAConnectionThatWasBegunIsUsedOnce(t *testing.T) {
	var a ahead
	var p pipes
	a.begin(t.Context(), p.dial)
	first, err := a.dial(t.Context(), p.dial)
	if err != nil || p.dials != 1 {
		t.Fatalf("%d dials, %v", p.dials, err)
	}
	second, err := a.dial(t.Context(), p.dial)
	if err != nil || p.dials != 2 || second == first {
		t.Fatalf("%d dials, %v", p.dials, err)
	}
}

func TestABegunConnectionThatFailedIsDialledAnew(t *testing.T) {
	var a ahead
	p := pipes{fail: errors.New("no")}
	a.begin(t.Context(), p.dial)
	works := &pipes{}
	conn, err := a.dial(t.Context(), works.dial)
	if err != nil || conn == nil || works.dials != 1 {
		t.Fatalf("%v, %d dials, %v", conn, works.dials, err)
	}
}

func TestNobodyWaitsForABegunConnectionLongerThanHisOwnTime(t *testing.T) {
	var a ahead
	near, far := net.Pipe()
	gate := make(chan struct{})
	a.begin(t.Context(), func(context.Context) (net.Conn, error) { <-gate; return near, nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.dial(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(gate)
	closedByOther(t, far)
}

func TestAnUnusedConnectionIsClosed(t *testing.T) {
	for name, end := range map[string]func(a *ahead, p *pipes){
		"dropped":   func(a *ahead, _ *pipes) { a.drop() },
		"begun new": func(a *ahead, p *pipes) { a.begin(t.Context(), p.dial) },
	} {
		t.Run(name, func(t *testing.T) {
			var a ahead
			var p pipes
			done := make(chan struct{})
			a.begin(t.Context(), func(ctx context.Context) (net.Conn, error) { defer close(done); return p.dial(ctx) })
			<-done
			far := p.far[0]
			end(&a, &p)
			closedByOther(t, far)
			a.drop()
			a.drop() // repeating it is harmless
		})
	}
}
