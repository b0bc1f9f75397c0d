package vmmctl

import (
	"context"
	"strings"
	"testing"
)

func TestHotSetsAreWrittenAndPopulated(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	ctx := context.Background()
	hot := file(t, "")
	if r, err := p.WriteHot(ctx, hot); err != nil || r != (HotResult{Runs: 2, ReadPages: 3, WrittenPages: 4}) {
		t.Fatalf("write: got %+v, %v", r, err)
	}
	if r, err := p.Populate(ctx, hot); err != nil || r != (HotResult{Runs: 2, KVMNanos: 5}) {
		t.Fatalf("populate: got %+v, %v", r, err)
	}
	if _, err := p.Populate(ctx, file(t, "cold")); err == nil || !strings.Contains(err.Error(), `no hot set but "cold"`) {
		t.Fatalf("populate of another file: got %v", err)
	}
}

func TestHotRequestsWithoutTheirFileAreRefused(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	for _, op := range []string{opWriteHot, opPopulate} {
		if err := p.call(context.Background(), op, nil, nil); err == nil || !strings.Contains(err.Error(), errFiles.Error()) {
			t.Errorf("%s: got %v", op, err)
		}
	}
}
