package httpapi_test

import (
	"strconv"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// A tenant's activity neither removes the events of others nor shows in their IDs.
func TestALoudTenantKeepsToItsOwnEvents(t *testing.T) {
	b := newEventBench(t, 4)
	b.add(sandbox.EventReady, "quiet-0", "quiet")
	b.add(sandbox.EventReady, "op-0", "")
	for i := range 100 {
		b.add(sandbox.EventReady, "loud-"+strconv.Itoa(i), "loud")
	}
	b.add(sandbox.EventReady, "quiet-1", "quiet")
	got := b.follow("?after=0", "", "quiet", 2)
	if ids(got) != "quiet-0 quiet-1" || got[1].ID != got[0].ID+1 {
		t.Errorf("the quiet tenant sees %+v", got)
	}
	last := strconv.FormatUint(got[0].ID, 10)
	if again := b.follow("", last, "quiet", 1); ids(again) != "quiet-1" {
		t.Errorf("after %s the quiet tenant sees %+v", last, again)
	}
	if got := ids(b.follow("?after=0", "", "", 7)); got != "quiet-0 op-0 loud-96 loud-97 loud-98 loud-99 quiet-1" {
		t.Errorf("the operator sees %s", got)
	}
}
