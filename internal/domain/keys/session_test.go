package keys

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/principal"
)

func TestABoundContextEndsWithItsKey(t *testing.T) {
	s, _, _ := newStore(t)
	k, text := create(t, s, spec())
	request, done := context.WithCancel(t.Context())
	defer done()
	old := s.Bind(request, text)
	_, next, err := s.Rotate(k.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	<-old.Done()
	current := s.Bind(request, next)
	if current.Err() != nil || !errors.Is(context.Cause(old), principal.ErrKeyEnded) {
		t.Errorf("after the rotation: %v, %v", current.Err(), context.Cause(old))
	}
	if _, err := s.Revoke(k.ID); err != nil {
		t.Fatal(err)
	}
	<-current.Done()
	if late := s.Bind(request, next); !errors.Is(context.Cause(late), principal.ErrKeyEnded) {
		t.Errorf("a dead key opens a context: %v", context.Cause(late))
	}
}

func TestABoundContextIsFreedWithItsRequest(t *testing.T) {
	s, _, _ := newStore(t)
	_, text := create(t, s, spec())
	request, done := context.WithCancel(t.Context())
	bound := s.Bind(request, text)
	done()
	<-bound.Done()
	for deadline := time.Now().Add(10 * time.Second); s.Bound() != 0; runtime.Gosched() { // it is released asynchronously
		if time.Now().After(deadline) {
			t.Fatalf("%d contexts are bound after their request's end", s.Bound())
		}
	}
}
