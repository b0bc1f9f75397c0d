package guestfork

import (
	"errors"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// Concurrent forks of one tree share its room, also forks of different sandboxes.
func TestRoomIsReserved(t *testing.T) {
	f := New(Config{Limits: sandbox.TreeLimits{Size: 4, Depth: 3, MemoryMiB: 1 << 20}, Sandboxes: sandboxes.New(sandboxes.Config{})})
	fork := func(id, root, token string, n int) *guestForkOp {
		return &guestForkOp{f: f, info: sandbox.Info{ID: id, Kin: sandbox.Kin{MayFork: true, Root: root}},
			req: forkwire.Request{N: n, Token: token}}
	}
	release, err := fork("sb-1", "", "t1", 3).reserve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fork("sb-2", "sb-1", "t2", 2).reserve(); !errors.Is(err, sandbox.ErrQuota) ||
		asTold(err).Code != forkwire.Limit {
		t.Errorf("beyond the room: %v", err)
	}
	if _, err := fork("sb-2", "sb-1", "t3", 1).reserve(); err != nil {
		t.Errorf("within the room: %v", err)
	}
	if _, err := fork("sb-3", "", "t4", 4).reserve(); err != nil {
		t.Errorf("in another tree: %v", err)
	}
	release()
	if _, err := fork("sb-2", "sb-1", "t5", 3).reserve(); err != nil {
		t.Errorf("in room that was given back: %v", err)
	}
}
