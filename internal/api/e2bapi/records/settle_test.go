package records

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Several concurrent writers have read a record without a token. The first one's token stays.
func TestTheFirstTokenStays(t *testing.T) {
	dir := t.TempDir()
	s, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := Record{ID: "sb-00000001-0001", Template: "base", Started: time.Now()}
	var made atomic.Int32
	newToken := func() string { return "token-" + strconv.Itoa(int(made.Add(1))) }
	if got, err := s.Settle(r, false, newToken); err != nil || got.EnvdToken != "" || len(s.All()) != 0 {
		t.Errorf("a sandbox that has ended: %+v, %v; %d records", got, err, len(s.All()))
	}
	var all sync.WaitGroup
	tokens := make([]string, 20)
	for i := range tokens {
		all.Go(func() {
			got, err := s.Settle(r, true, newToken)
			if tokens[i] = got.EnvdToken; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, token := range tokens {
		if token != "token-1" {
			t.Errorf("writer %d has the token %q, want the first", i, token)
		}
	}
	again, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := again.Get(r.ID); got.EnvdToken != "token-1" || made.Load() != 1 {
		t.Errorf("the file has the token %q of %d", got.EnvdToken, made.Load())
	}
	r.OpenAgent = true
	if got, err := again.Settle(r, true, newToken); err != nil || got.EnvdToken != "" || made.Load() != 1 {
		t.Errorf("an open agent: %+v, %v", got, err)
	}
}
