package placement

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Random answers, facts and lost nodes never leave promises behind, and the sums stay those of the reservations.
func TestPromisesAddUp(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		b, now := bench()
		facts := func() {
			for i := range 6 {
				f := ok(fmt.Sprint(i))
				f.Asked = *now
				b.Observe(f)
			}
		}
		facts()
		var open []*Claim
		for step := range 500 {
			*now = now.Add(time.Duration(random.IntN(300)) * time.Millisecond)
			switch random.IntN(12) {
			case 0:
				facts()
			case 1:
				b.Forget(fmt.Sprint(random.IntN(6)))
			default:
				c := b.Claim(Request{ID: fmt.Sprint(step), Snapshot: fmt.Sprint(random.IntN(3)), Base: 20, Unique: 5})
				if _, err := c.Next(); err == nil {
					open = append(open, c)
				}
			}
			for i := len(open) - 1; i >= 0; i-- {
				if random.IntN(3) > 0 {
					continue
				}
				done, _ := open[i].Result(randomAnswer(random))
				if !done {
					_, err := open[i].Next()
					done = err != nil
				}
				if done {
					open = append(open[:i], open[i+1:]...)
				}
			}
			addsUp(t, b)
		}
		for _, c := range open {
			_, _ = c.Result(nil)
		}
		*now = now.Add(2 * time.Minute)
		facts()
		for _, n := range b.nodes {
			if n.promised != 0 || n.doubtful != 0 || len(n.held) != 0 || len(n.taken) != 0 {
				t.Fatalf("seed %d: %s has %d MiB promised in the end", seed, n.facts.Name, n.promised)
			}
		}
	}
}

func randomAnswer(random *rand.Rand) error {
	switch random.IntN(6) {
	case 0:
		return &Refusal{Kind(random.IntN(3)), errors.New("no")}
	case 1:
		return context.DeadlineExceeded
	case 2:
		return errors.New("500")
	default:
		return nil
	}
}

func addsUp(t *testing.T, b *Board) {
	t.Helper()
	for i, n := range b.nodes {
		var promised, doubtful int64
		for _, r := range n.held {
			promised += r.memory
			if r.doubtful {
				doubtful += r.memory
			}
		}
		if n.promised != promised || n.doubtful != doubtful || n.at != i || b.byName[n.facts.Name] != n {
			t.Fatalf("%s: %d and %d MiB promised, its reservations have %d and %d", n.facts.Name, n.promised, n.doubtful,
				promised, doubtful)
		}
	}
}

// Many requests use one board at the same time.
func TestConcurrentClaims(t *testing.T) {
	const claims = 1000
	b, now := bench()
	room := map[string]int{}
	for i := range 20 {
		name := fmt.Sprint(i)
		room[name] = claims / 20
		b.Observe(Facts{Name: name, Asked: *now, Capacity: claims / 20 * 10, DiskFree: 1})
	}
	var mu sync.Mutex // guards room
	var all sync.WaitGroup
	errs := make(chan error, claims)
	for i := range claims {
		all.Go(func() {
			_, err := b.Place(t.Context(), Request{ID: fmt.Sprint(i), Unique: 10}, func(_ context.Context, node string) error {
				mu.Lock()
				defer mu.Unlock()
				if room[node] == 0 {
					return &Refusal{Full, errors.New("full")}
				}
				room[node]--
				return nil
			})
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
