package client

import (
	"os"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// manyExtents returns more extents than fit a message.
func manyExtents(files []*os.File, n int) []extent.Extent {
	out := []extent.Extent{{Length: 1 << 40}} // zero pages
	for i := range n - 1 {
		out = append(out, extent.Extent{File: files[i%len(files)], FileOffset: int64(i) << 12, Offset: int64(2*i) << 12, Length: 4096})
	}
	return out
}

func TestRebaseAndALongChain(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	files := []*os.File{vmctltest.File(t, "a"), vmctltest.File(t, "b"), vmctltest.File(t, "c")}
	if _, err := p.Restore(t.Context(), vmm.RestoreConfig{State: vmctltest.File(t, "state"), Memory: manyExtents(files, 5000), CID: 7}); err != nil {
		t.Fatal(err)
	}
	base := manyExtents(files, 4000)[1:]
	err := p.Rebase(t.Context(), [][]extent.Extent{base, base[:2], nil})
	if want := "3999 extents of 3 files, 2 extents of 2 files, 0 extents of 0 files"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
