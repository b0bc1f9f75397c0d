package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestBranch(t *testing.T) {
	d, c, id := sandbox(t, nil)
	d.engine.Limit = 3
	res, err := c.Branch(t.Context(), id, api.BranchRequest{Tag: "mid", Mode: api.BranchDiff, N: 3, MaxPauseMS: 100})
	if err != nil {
		t.Fatal(err)
	}
	if res.Tag != "mid" || *res.BranchedFrom != id || *res.ParentTag != "py" || *res.PauseMS != 8 || res.Mechanism != "none" || res.PausedBytes != res.BytesWritten {
		t.Errorf("got %+v", res)
	}
	if len(res.Children) != 3 || res.Children[1].SnapshotTag != "mid" || res.Children[2].Code != api.CodeNoMemory {
		t.Errorf("children are %+v", res.Children)
	}
}

func TestBranchWithoutWaiting(t *testing.T) {
	d, c, id := sandbox(t, nil)
	no := false
	res, err := c.Branch(t.Context(), id, api.BranchRequest{Tag: "mid", Wait: &no})
	if err != nil || res.Status != api.SnapshotWriting {
		t.Fatalf("got %+v, %v", res, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "mid"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fork before it is written: %v", err)
	}
	d.engine.Finish("mid")
	if _, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "mid"}); err != nil {
		t.Error(err)
	}
}

func TestBranchErrors(t *testing.T) {
	d, c, id := sandbox(t, nil)
	d.engine.BranchLimit = 0
	_, err := c.Branch(t.Context(), id, api.BranchRequest{})
	var e *client.Error
	if !errors.As(err, &e) || e.Code != api.CodeBusy || e.RetryAfter != time.Second || !e.FromDaemon() {
		t.Errorf("a daemon with enough to do: %+v", e)
	}
	d.engine.BranchLimit = 1
	for _, c2 := range []struct {
		name, id, text string
		req            api.BranchRequest
		code           api.Code
	}{
		{"unknown sandbox", "sb-none", "sb-none", api.BranchRequest{}, api.CodeNotFound},
		{"tag exists", id, "py", api.BranchRequest{Tag: "py"}, api.CodeConflict},
		{"pause that cannot be kept", id, "1.5ms", api.BranchRequest{MaxPauseMS: 1}, api.CodeConflict},
		{"unknown mode", id, "mode", api.BranchRequest{Mode: "quick"}, api.CodeInvalid},
	} {
		t.Run(c2.name, func(t *testing.T) {
			_, err := c.Branch(t.Context(), c2.id, c2.req)
			if client.CodeOf(err) != c2.code || !strings.Contains(err.Error(), c2.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}
