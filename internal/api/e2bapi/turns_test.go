package e2bapi_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// slowLives delays its first life until later ones are set, for a limited time.
type slowLives struct {
	e2bapi.Lives
	armed   atomic.Bool
	reached chan struct{} // closed when the first one has come
	others  chan struct{} // closed when another one was set
	once    sync.Once
}

func (s *slowLives) SetLife(ctx context.Context, id string, l e2bapi.Life) error {
	if s.armed.CompareAndSwap(true, false) {
		close(s.reached)
		select {
		case <-s.others:
		case <-time.After(300 * time.Millisecond):
		}
		return s.Lives.SetLife(ctx, id, l)
	}
	err := s.Lives.SetLife(ctx, id, l)
	select {
	case <-s.reached:
		s.once.Do(func() { close(s.others) })
	default:
	}
	return err
}

// Concurrent requests extend a sandbox's time. The latest end applies in its record and in the
// engine, whatever the order of the calls to the engine.
func TestTheLaterEndHolds(t *testing.T) {
	for _, c := range []struct{ name, first, firstBody, second, secondBody string }{
		{"the longer connect is first", "connect", `{"timeout":900}`, "connect", `{"timeout":500}`},
		{"the shorter connect is first", "connect", `{"timeout":500}`, "connect", `{"timeout":900}`},
		{"a refresh after a connect", "connect", `{"timeout":900}`, "refreshes", `{"duration":500}`},
		{"a connect after a refresh", "refreshes", `{"duration":500}`, "connect", `{"timeout":900}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			slow := &slowLives{reached: make(chan struct{}), others: make(chan struct{})}
			b := newBench(t, func(o *e2bapi.Options) { slow.Lives, o.Lives = o.Lives, slow })
			s := b.create(`{"templateID":"base","timeout":60}`)
			slow.armed.Store(true)
			send := func(route, body string) {
				if a := b.do("POST", "/sandboxes/"+s.SandboxID+"/"+route, body); a.StatusCode >= 300 {
					t.Errorf("%s: %s %s", route, a.Status, a.body)
				}
			}
			var all sync.WaitGroup
			all.Go(func() { send(c.first, c.firstBody) })
			<-slow.reached
			all.Go(func() { send(c.second, c.secondBody) })
			all.Wait()
			record := b.record(s).End.Sub(b.clock.now())
			engine := b.engine.Lives[sandbox.CanonicalID(s.SandboxID)].End.Sub(b.clock.now())
			if fmt.Sprint(record, engine) != "15m0s 15m0s" {
				t.Errorf("it ends in %s by its record and in %s by the engine, want 15m", record, engine)
			}
		})
	}
}
