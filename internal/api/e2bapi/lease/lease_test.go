package lease

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSandboxesEndAtTheirDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		ended := map[string]time.Duration{}
		k := New(func(_ context.Context, id string) {
			mu.Lock()
			defer mu.Unlock()
			ended[id] = time.Since(began)
		}, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx) })
		k.Set("late", began.Add(time.Hour))
		k.Set("early", began.Add(time.Minute))
		k.Set("extended", began.Add(time.Minute))
		k.Set("extended", began.Add(2*time.Minute))
		k.Set("spared", began.Add(time.Minute))
		k.Set("spared", time.Time{})
		k.Set("past", began.Add(-time.Hour))
		time.Sleep(30 * time.Minute) // elapses: the bubble's own time
		synctest.Wait()
		k.Set("late", time.Now())
		synctest.Wait()
		cancel()
		running.Wait()
		want := map[string]time.Duration{"past": 0, "early": time.Minute, "extended": 2 * time.Minute, "late": 30 * time.Minute}
		if len(ended) != len(want) {
			t.Errorf("got %v, want %v", ended, want)
		}
		for id, at := range want {
			if ended[id] != at {
				t.Errorf("%s ended after %s, want %s", id, ended[id], at)
			}
		}
	})
}
