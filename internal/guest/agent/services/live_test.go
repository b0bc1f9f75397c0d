package services

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// manual is a clock that a test moves.
type manual struct {
	t  *testing.T
	mu sync.Mutex
	at time.Duration
	// waiting are the timers that have not fired.
	waiting map[chan time.Time]time.Duration
	set     chan time.Duration // receives the time of each new timer
}

func newManual(t *testing.T) *manual {
	return &manual{t: t, waiting: map[chan time.Time]time.Duration{}, set: make(chan time.Duration, 1000)}
}

func (m *manual) After(d time.Duration) <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan time.Time, 1)
	m.waiting[c] = m.at + d
	m.set <- d
	return c
}

// move moves the clock.
func (m *manual) move(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at += d
	for c, at := range m.waiting {
		if at <= m.at {
			delete(m.waiting, c)
			c <- time.Time{}
		}
	}
}

// await waits for a new timer of a time.
func (m *manual) await(d time.Duration) {
	m.t.Helper()
	for limit := time.After(30 * time.Second); ; {
		select {
		case got := <-m.set:
			if got == d {
				return
			}
		case <-limit:
			m.t.Fatalf("no timer of %s", d)
		}
	}
}

// Each letter is a check: S succeeds, F fails, I is a failure that a wake interrupts. W is a wake before the next
// check.
func TestLivenessCountsFailuresInARow(t *testing.T) {
	const every = 7 * time.Second
	for row, fails := range map[string]bool{
		"FFF": true, "FF": false, "FFSFF": false, "SSSSFFF": true, "FFWFF": false, "FFWFFF": true, "FFIFF": false,
		"FFIFFF": true, "IIIII": false, "WFWFWFWF": false,
	} {
		t.Run(row, func(t *testing.T) {
			m, checks := newManual(t), make(chan rune)
			var wakes atomic.Int64
			try := func(context.Context) error {
				c := <-checks
				if c == 'I' {
					wakes.Add(1)
				}
				if c == 'S' {
					return nil
				}
				return errors.New("sick")
			}
			l := liveness{servicespec.Liveness{IntervalMS: every.Milliseconds(), FailureThreshold: 3}, m.After, try, wakes.Load}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end := make(chan error, 1)
			go func() { end <- l.run(ctx) }()
			for _, c := range row {
				if m.await(every); c == 'W' {
					wakes.Add(1)
					m.set <- every // the loop still waits
					continue
				}
				m.move(every)
				checks <- c
			}
			if fails {
				if err := <-end; err == nil || err.Error() != "its check failed 3 times in a row: sick" {
					t.Errorf("got %v", err)
				}
				return
			}
			m.await(every) // it goes on
			cancel()
			if err := <-end; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A guest that stands still is late for all its timers at once. That is an eighth of a limit at most.
func TestAPauseIsNoTimeout(t *testing.T) {
	m := newManual(t)
	cause := errors.New("no answer")
	ctx, stop := clock(m.After).patient(t.Context(), 8*time.Second, cause)
	defer stop()
	for n := range steps {
		m.await(time.Second)
		if ctx.Err() != nil {
			t.Fatalf("the time is up after %d steps", n)
		}
		m.move(map[bool]time.Duration{true: 24 * time.Hour, false: time.Second}[n == 3])
	}
	<-ctx.Done()
	if context.Cause(ctx) != cause {
		t.Errorf("got %v", context.Cause(ctx))
	}
	again, stop := clock(m.After).patient(t.Context(), time.Hour, cause)
	stop()
	<-again.Done()
	if !errors.Is(context.Cause(again), context.Canceled) {
		t.Errorf("got %v", context.Cause(again))
	}
}

// program is a process of a service that ends when it is killed.
type program struct {
	pid  int
	done chan struct{}
	once sync.Once
}

func (p *program) PID() int              { return p.pid }
func (p *program) Group() string         { return "" }
func (p *program) Done() <-chan struct{} { return p.done }
func (p *program) ExitCode() int         { return 137 }
func (p *program) Signal(int)            {} // it hangs
func (p *program) Kill()                 { p.once.Do(func() { close(p.done) }) }

// A server that accepts no more connections is ended and started again. A wake before the last failure gives it
// more time, and so does a clock that jumps.
func TestASilentServerIsRestarted(t *testing.T) {
	const every, limit = 7 * time.Second, 16 * time.Second // a step of the limit is 2 s
	server := serveSilently(t)
	m, starts := newManual(t), 0
	s := New(Config{After: m.After, Log: t.Logf, Start: func(servicespec.Spec, *os.File) (Process, error) {
		starts++
		return &program{pid: starts, done: make(chan struct{})}, nil
	}})
	defer s.Close()
	answers := &server.answers
	answers.Store(true)
	spec := servicespec.Spec{Name: "web", Command: []string{"web"}, Port: server.port, StopMS: 1,
		Ready:    servicespec.Ready{HTTP: "/"},
		Liveness: servicespec.Liveness{IntervalMS: every.Milliseconds(), TimeoutMS: limit.Milliseconds(), FailureThreshold: 2},
		Backoff:  servicespec.Backoff{InitialMS: 10}}
	if err := s.Declare(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	m.await(every) // it is ready
	answers.Store(false)
	hang := func() {
		m.move(every)
		for range steps {
			m.await(limit / steps)
			m.move(limit / steps)
		}
	}
	hang()
	m.await(every)
	s.Woke()
	hang()
	m.await(every)
	if st := s.List().Services[0]; st.State != servicespec.IsReady || st.PID != 1 {
		t.Fatalf("after a failure, a wake and a failure: %+v", st)
	}
	hang()
	awaitStatus(t, s, func(st servicespec.Status) bool {
		return st.Restarts == 1 && st.PID == 2 && st.Error == "its check failed 2 times in a row: no answer in 16s"
	})
	answers.Store(true)
	awaitStatus(t, s, func(st servicespec.Status) bool { return st.State == servicespec.IsReady })
}

// awaitStatus waits for a status of the only service.
func awaitStatus(t *testing.T, s *Supervisor, ok func(servicespec.Status) bool) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		s.mu.Lock()
		st, changed := s.listLocked().Services[0], s.changed
		s.mu.Unlock()
		if ok(st) {
			return
		}
		select {
		case <-changed:
		case <-limit.Done():
			t.Fatalf("the service is %+v", st)
		}
	}
}

// silent is an HTTP server that may take connections without an answer.
type silent struct {
	port    int
	answers atomic.Bool
}

func serveSilently(t *testing.T) *silent {
	s, end := &silent{}, make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !s.answers.Load() {
			select {
			case <-r.Context().Done():
			case <-end:
			}
		}
	}))
	t.Cleanup(func() { close(end); server.Close() })
	s.port = server.Listener.Addr().(*net.TCPAddr).Port
	return s
}
