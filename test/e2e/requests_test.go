package e2e

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

func TestBadTags(t *testing.T) {
	d := shared(t)
	d.unchanged()
	for _, tag := range []string{"", "a b", "../../etc", "a/b", ".hidden", strings.Repeat("a", 65), "ä", "a\x00"} {
		_, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: tag, Image: "box"}, nil)
		wantError(t, err, api.CodeInvalid, "tag", "1 to 64 letters, digits, - or _")
		_, err = d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag})
		wantError(t, err, api.CodeInvalid, "snapshot_tag", "1 to 64 letters, digits, - or _")
	}
	for _, tag := range []string{"a b", url.PathEscape("../x"), strings.Repeat("a", 65)} {
		err := d.c.DeleteSnapshot(t.Context(), tag, client.DeleteOptions{Force: true})
		wantError(t, err, api.CodeInvalid, "tag", "1 to 64 letters, digits, - or _")
	}
	if code, _, errs := d.cli("fork", "a b"); code != 2 || !strings.Contains(errs, "letters, digits, - or _") {
		t.Errorf("the CLI's exit code is %d: %s", code, errs)
	}
}

func TestUnknownTags(t *testing.T) {
	d := shared(t)
	d.unchanged()
	const tag = "no-such-tag"
	_, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag})
	wantError(t, err, api.CodeNotFound, tag)
	_, err = d.c.Snapshot(t.Context(), tag)
	wantError(t, err, api.CodeNotFound, tag)
	_, err = d.c.VerifySnapshot(t.Context(), tag, nil)
	wantError(t, err, api.CodeNotFound, tag)
	wantError(t, d.c.SetPool(t.Context(), tag, 1), api.CodeNotFound, tag)
	wantError(t, d.c.DeleteSnapshot(t.Context(), tag, client.DeleteOptions{}), api.CodeNotFound, tag)
	_, err = d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "a", Image: "no-such-image"}, nil)
	wantError(t, err, api.CodeNotFound, "no-such-image", "image_not_found")
	if code, _, errs := d.cli("fork", tag); code != 3 || !strings.Contains(errs, tag) || !strings.Contains(errs, "forkd snapshot ls") {
		t.Errorf("the CLI's exit code is %d: %s", code, errs)
	}
}

func TestTagExists(t *testing.T) {
	d := shared(t)
	d.unchanged()
	before, err := d.c.Snapshot(t.Context(), parentTag)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: "box"}, nil)
	wantError(t, err, api.CodeConflict, parentTag, "exists", "tag_taken")
	after, err := d.c.Snapshot(t.Context(), parentTag)
	if err != nil || after.CreatedAtUnix != before.CreatedAtUnix || after.Image != before.Image || after.Status != api.SnapshotReady {
		t.Errorf("the snapshot is now %+v, %v", after, err)
	}
	if code, _, errs := d.cli("snapshot", "create", "--tag", parentTag, "--image", "box"); code != 4 || !strings.Contains(errs, "exists") {
		t.Errorf("the CLI's exit code is %d: %s", code, errs)
	}
}

func TestASnapshotInUseIsNotDeleted(t *testing.T) {
	d := shared(t)
	id := d.oneSandbox()
	d.unchanged()
	wantError(t, d.c.DeleteSnapshot(t.Context(), parentTag, client.DeleteOptions{}), api.CodeConflict, parentTag, id, "dependent_sandboxes")
}

func TestRequestsThatAskForNonsense(t *testing.T) {
	d := shared(t)
	d.unchanged()
	for _, c := range []struct {
		name, want string
		req        api.CreateSnapshotRequest
	}{
		{"nothing to boot", "must be given", api.CreateSnapshotRequest{Tag: "a"}},
		{"two things", "exclude each other", api.CreateSnapshotRequest{Tag: "a", Image: "box", Kernel: "/k", Rootfs: "/r"}},
		{"kernel alone", "kernel and rootfs", api.CreateSnapshotRequest{Tag: "a", Kernel: "/k"}},
		{"no such file", "nope is not a file", api.CreateSnapshotRequest{Tag: "a", Kernel: filepath.Join(d.Dir, "nope"), Rootfs: filepath.Join(d.Dir, "nope")}},
		{"too little memory", "memory_mib is 1, want 64 to", api.CreateSnapshotRequest{Tag: "a", Image: "box", MemoryMiB: 1}},
		{"too many CPUs", "vcpus is 9: expected number <= 8", api.CreateSnapshotRequest{Tag: "a", Image: "box", VCPUs: 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.c.CreateSnapshot(t.Context(), c.req, nil)
			wantError(t, err, api.CodeInvalid, c.want)
		})
	}
	for _, n := range []int{-1, 0, api.MaxFork + 1} {
		_, err := d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &n})
		wantError(t, err, api.CodeInvalid, fmt.Sprintf("n is %d: expected number", n))
	}
}

func TestUnknownSandboxes(t *testing.T) {
	d := shared(t)
	d.unchanged()
	const id = "sb-0-0000"
	_, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}})
	wantError(t, err, api.CodeNotFound, id)
	_, err = d.c.Eval(t.Context(), id, api.EvalRequest{Code: "1"})
	wantError(t, err, api.CodeNotFound, id)
	_, err = d.c.Ping(t.Context(), id)
	wantError(t, err, api.CodeNotFound, id)
	_, err = d.c.Console(t.Context(), id)
	wantError(t, err, api.CodeNotFound, id)
	wantError(t, d.c.Kill(t.Context(), id), api.CodeNotFound, id)
	_, err = d.c.ExecStream(t.Context(), id, client.ExecOptions{Args: []string{"true"}})
	wantError(t, err, api.CodeNotFound, id)
}
