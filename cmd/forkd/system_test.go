package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// Prune removes chains of build snapshots, leaves first, but none below another snapshot or a
// sandbox, and no new one.
func TestUnusedBuildSnapshots(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tag := func(n int) string { return fmt.Sprintf("build-%040x", n) }
	snapshot := func(tag, parent string, age time.Duration) api.SnapshotInfo {
		s := api.SnapshotInfo{Tag: tag, Status: api.SnapshotReady, CreatedAtUnix: now.Add(-age).Unix()}
		if parent != "" {
			s.ParentTag = &parent
		}
		return s
	}
	writing := snapshot(tag(9), "", time.Hour)
	writing.Status = api.SnapshotWriting
	pinned := snapshot(tag(10), "", time.Hour)
	pinned.Pinned = true
	s := stock{used: map[string]bool{tag(7): true}, snapshots: []api.SnapshotInfo{
		snapshot(tag(1), "", time.Hour), snapshot(tag(2), tag(1), time.Hour), snapshot(tag(3), tag(2), time.Hour),
		snapshot(tag(4), "", time.Hour), snapshot("app", tag(4), time.Hour),
		snapshot(tag(5), "", time.Hour), snapshot(tag(6), tag(5), time.Second),
		snapshot(tag(7), "", time.Hour), snapshot("build-mine", "", time.Hour), writing, pinned,
	}}
	var got []string
	for _, info := range s.unused(time.Minute, now) {
		got = append(got, info.Tag)
	}
	if want := []string{tag(3), tag(2), tag(1)}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
