package engine_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/store/extent"
)

// oracleHost returns a host with the oracle enabled, and the log of its engines.
func oracleHost(t *testing.T) (*enginefake.Host, *enginefake.Log) {
	t.Helper()
	h, log := enginefake.NewHost(t), &enginefake.Log{}
	h.Cfg.Oracle, h.Cfg.Logger = true, slog.New(slog.NewTextHandler(log, nil))
	return h, log
}

// A creation, each mode, a branch of a branch, a NoWait branch, one with a disk, and a compaction:
// all are compared, and match their sources.
func TestTheOracleSeesEveryCapture(t *testing.T) {
	h, log := oracleHost(t)
	e := h.Open()
	n := 0
	checked := func(what string) {
		t.Helper()
		if n++; log.Count(sandbox.OracleChecked) != n || log.Count(sandbox.OracleMismatch) != 0 {
			t.Fatalf("after %s the log has %d comparisons, want %d: %s", what, log.Count(sandbox.OracleChecked), n, log.String())
		}
	}
	h.Disky(e, 0)
	checked("a creation")
	sb := h.Fork(e, "d", 1)[0]
	for _, mode := range []sandbox.BranchMode{sandbox.BranchLive, sandbox.BranchDiff, sandbox.BranchFull} {
		r, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: string(mode), Mode: mode, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		checked(string(mode))
		sb = r.Fork.Children[0].Info
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "later", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	h.Fork(e, "later", 1)
	checked("a branch that nobody waited for")
	if _, err := e.CompactSnapshot(t.Context(), "later", "flat", nil); err != nil {
		t.Fatal(err)
	}
	checked("a compaction")
}

// A snapshot that differs from its source is reported and deleted.
func TestTheOracleTellsWhatDiffers(t *testing.T) {
	h, log := oracleHost(t)
	e := h.Open()
	sb := h.Disky(e, 1)[0]
	before := h.Stored()
	branch := func() error { return h.Branch(e, sb.ID, "wrong") }
	for i, c := range []struct {
		token, says string
		do          func() error
	}{
		{"save-alters", "memory: 1 of 16384 pages differ: 256", func() error {
			_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "wrong", Image: "tiny"}, nil)
			return err
		}},
		{"capture-forgets", "memory: 1 of 16384 pages differ: 4", branch},
		{"capture-alters", "memory: 1 of 16384 pages differ: 1", branch},
		{"capture-disk", "disk 0: 1 of 256 pages differ: 0", branch},
	} {
		h.Fault(c.token, 1)
		err := c.do()
		enginefake.WantError(t, err, enginefake.ErrAny, sandbox.OracleMismatch, "wrong", c.says)
		if n := log.Count("level=ERROR msg=\"" + sandbox.OracleMismatch); n != i+1 {
			t.Errorf("%s: the log has %d mismatches, want %d", c.token, n, i+1)
		}
		if now := h.Stored(); now != before {
			t.Errorf("%s: stored are now %s, before it was %s", c.token, now, before)
		}
	}
	h.Fault("capture-forgets", 1)
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: sb.ID, Tag: "wrong", NoWait: true}); err != nil {
		t.Fatal(err)
	}
	_, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "wrong", N: 1}) // waits
	enginefake.WantError(t, err, sandbox.ErrConflict, sandbox.OracleMismatch)
	if s, err := e.SnapshotInfo(t.Context(), "wrong"); err != nil || s.Status != sandbox.SnapshotFailed || !strings.Contains(s.Warning, "pages differ: 4") {
		t.Errorf("it is listed as %+v, %v", s, err)
	}
	if log.Count(sandbox.OracleChecked) != 1 { // the creation
		t.Error("one that differs was counted as compared")
	}
	if err := h.Branch(e, sb.ID, "wrong"); err != nil {
		t.Errorf("branch again: %v", err)
	}
}

// Without the oracle a VMM gets no request for digests.
func TestTheOracleIsOffByDefault(t *testing.T) {
	h, log := oracleHost(t)
	h.Cfg.Oracle = false
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fault("capture-forgets", 1)
	if err := h.Branch(e, h.Fork(e, "a", 1)[0].ID, "b"); err != nil || log.Count("oracle") != 0 {
		t.Errorf("%v; the log has %d words of the oracle", err, log.Count("oracle"))
	}
}

// An ExtentImage reads like a VMM that maps the extents, and its next skips only zeros.
func TestAnExtentImage(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		list, size, content := randomExtents(t, random)
		got, err := op.ExtentDigests(list, size)
		if err != nil {
			t.Fatal(err)
		}
		file := extent.Extent{File: tempFile(t, content), Length: size}
		want, err := op.ExtentDigests([]extent.Extent{file}, size)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d extents of %d bytes show %x, want %x", len(list), size, got, want)
		}
	}
	short := extent.Extent{File: tempFile(t, make([]byte, 4096)), Length: 8192}
	if _, err := op.ExtentDigests([]extent.Extent{short}, 8192); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that is cut short: %v", err)
	}
}

// randomExtents returns pages of a sparse file, in pieces, with gaps and zero pages.
func randomExtents(t *testing.T, random *rand.Rand) (out []extent.Extent, size int64, content []byte) {
	t.Helper()
	const page = 4096
	f := tempFile(t, nil)
	if err := f.Truncate(64 * page); err != nil {
		t.Fatal(err)
	}
	for range random.IntN(20) {
		if _, err := f.WriteAt([]byte{byte(random.Uint32())}, random.Int64N(64*page)); err != nil {
			t.Fatal(err)
		}
	}
	for at := int64(0); at < 64; {
		n := 1 + random.Int64N(8)
		s := extent.Extent{Offset: at * page, Length: n * page}
		if random.IntN(4) > 0 {
			s.File, s.FileOffset = f, random.Int64N(64-n)*page
		}
		if random.IntN(4) > 0 {
			out = append(out, s)
		}
		at += n
		size = at * page
	}
	content = make([]byte, size)
	for _, s := range out {
		if s.File == nil {
			continue
		}
		if _, err := f.ReadAt(content[s.Offset:s.Offset+s.Length], s.FileOffset); err != nil {
			t.Fatal(err)
		}
	}
	return out, size, content
}

func tempFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), filepath.Base(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}
