package e2e

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
)

// Three of six children fail in two ways. The other three run.
func TestSomeOfTheChildrenFail(t *testing.T) {
	d := shared(t)
	d.unchanged()
	n := 6
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Env: map[string]string{"E2E_FAIL": "2 5", "E2E_DIE": "3"}})
	if len(res.Sandboxes) != n {
		t.Fatalf("%d entries for %d children", len(res.Sandboxes), n)
	}
	for _, c := range []struct {
		index int
		code  api.Code
		words []string
	}{
		{2, api.CodeInternal, []string{"identity of child 2", "hook 50-e2e", "exit code 3", "told to fail"}},
		{5, api.CodeInternal, []string{"identity of child 5", "hook 50-e2e", "exit code 3", "told to fail"}},
		{3, api.CodeGuestGone, []string{"identity of child 3", "the guest powered off"}},
	} {
		got := res.Sandboxes[c.index-1]
		t.Logf("child %d: %s: %s", got.Index, got.Code, got.Error)
		if got.Index != c.index || got.Status != api.SandboxFailed || got.ID != "" || got.Code != c.code {
			t.Errorf("child %d: %+v", c.index, got)
		}
		for _, w := range c.words {
			if !strings.Contains(got.Error, w) {
				t.Errorf("child %d: %q does not say %q", c.index, got.Error, w)
			}
		}
	}
	for i, sb := range res.OK() {
		if want := []int{1, 4, 6}[i]; sb.Index != want {
			t.Errorf("the %d. that is there has index %d", i, sb.Index)
		}
	}
	d.alive(res.OK()...)
}

func TestTheCLITellsWhichChildrenFailed(t *testing.T) {
	d := shared(t)
	d.unchanged()
	code, out, errs := d.cli("fork", parentTag, "-n", "2", "-e", "E2E_FAIL=2")
	if code != 11 || !strings.Contains(out, "told to fail") || !strings.Contains(errs, "1 of 2 children could not be forked") {
		t.Errorf("exit code %d, want 11: %s %s", code, out, errs)
	}
	id := regexpID.FindString(out)
	if id == "" {
		t.Fatalf("no sandbox in %q", out)
	}
	if code, _, errs := d.cli("kill", id); code != 0 {
		t.Error(errs)
	}
}

// If all children fail, the request fails.
func TestAllChildrenFail(t *testing.T) {
	d := shared(t)
	d.unchanged()
	n := 2
	_, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n, Env: map[string]string{"E2E_FAIL": "1 2"}})
	wantError(t, err, api.CodeInternal, "identity of child 1", "hook 50-e2e", "told to fail")
}

// If a shell has died in the pool, the fork uses another. No child is lost.
func TestShellsThatDieInThePool(t *testing.T) {
	d := shared(t)
	d.unchanged()
	before := d.processes()
	if err := d.c.SetPool(t.Context(), parentTag, 4); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.c.SetPool(context.Background(), parentTag, 0); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "full pool", func() bool { return d.pool().Ready == 4 })
	killed := 0
	for _, pid := range d.processes() {
		if killed < 3 && !slices.Contains(before, pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed++
		}
	}
	d.alive(d.fork(4)...)
	eventually(t, "full pool again", func() bool { return d.pool().Ready == 4 })
}

// After a caller has disconnected, no children are left.
func TestACallerThatGoesAway(t *testing.T) {
	d := shared(t)
	d.unchanged()
	running := d.runningCount()
	ctx, cancel := context.WithCancel(t.Context())
	n := 20
	done := make(chan error)
	go func() {
		_, err := d.c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n})
		done <- err
	}()
	eventually(t, "first child", func() bool { return len(d.processes()) > running })
	cancel()
	if err := <-done; err == nil {
		t.Error("the fork was answered")
	}
	eventually(t, "end of the children", func() bool { return len(d.processes()) == running && d.runningCount() == running })
}
