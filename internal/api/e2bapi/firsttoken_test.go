package e2bapi_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// meeting is a clock at which a number of requests wait for each other.
type meeting struct {
	missing atomic.Int32
	all     chan struct{}
}

func meet(n int) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(int32(n))
	return m
}

func (m *meeting) now() time.Time {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
	case <-time.After(5 * time.Second):
	}
	return time.Now()
}

// connectAll connects several clients to a sandbox at the same moment, by both versions of the
// route, and returns their tokens.
func (b *bench) connectAll(id string, clients int) []string {
	versions := []string{"", "/v2"}
	var all sync.WaitGroup
	begin, tokens := make(chan struct{}), make([]string, clients)
	for i := range clients {
		all.Go(func() {
			<-begin
			a := b.do("POST", versions[i%len(versions)]+"/sandboxes/"+id+"/connect", `{"timeout":60}`)
			if a.StatusCode == 200 {
				tokens[i] = want[created](b.t, a, 200).EnvdAccessToken
			}
		})
	}
	close(begin)
	all.Wait()
	return tokens
}

// Clients that connect first at the same moment all get one token, which opens the agent.
func TestFirstConnectsGetOneToken(t *testing.T) {
	const clients = 8
	for name, recorded := range map[string]bool{"a native sandbox": false, "a record without a token": true} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Pointer[meeting]
			b := newBench(t, func(o *e2bapi.Options) {
				o.Now = func() time.Time {
					if m := clock.Load(); m != nil {
						return m.now()
					}
					return time.Now()
				}
			})
			b.create(`{"templateID":"base"}`)
			res, err := b.engine.Fork(t.Context(), sandbox.ForkRequest{Tag: "base", N: 5})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range res.Children {
				if recorded {
					rec := records.Record{ID: c.Info.ID, Template: "base", Started: time.Now(), End: time.Now().Add(time.Minute)}
					if err := b.store.Put(rec); err != nil {
						t.Fatal(err)
					}
					clock.Store(meet(clients)) // between the reads of the record and its writes
				}
				id := sandbox.DNSID(c.Info.ID)
				tokens := b.connectAll(id, clients)
				clock.Store(nil)
				for i, token := range tokens {
					if token == "" || token != tokens[0] {
						t.Errorf("%s: client %d got the token %.6q, client 0 %.6q", id, i, token, tokens[0])
					}
				}
				s := created{SandboxID: id, EnvdAccessToken: tokens[0]}
				if a := b.envd(s, "GET", "/envs", ""); a.StatusCode != 200 {
					t.Errorf("%s: the token of client 0: %s", id, a.Status)
				}
			}
		})
	}
}
