package fetcher

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/partial"
)

// silent is a registry that does not answer.
type silent struct{ asked, left chan struct{} }

func (s silent) Range(ctx context.Context, _ hub.Descriptor, _, _ int64) (io.ReadCloser, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	s.left <- struct{}{}
	return nil, context.Cause(ctx)
}

func (silent) Distrust() {}

// The rest of a deleted snapshot is not fetched.
func TestADroppedFileIsNotFetched(t *testing.T) {
	root, id := t.TempDir(), layer.NewID()
	table := &hub.Table{Body: hub.ChunkBytes, Frames: []hub.Frame{{Bytes: 100}}}
	spec := partial.Spec{Name: "layer/" + id.String(), Frames: hub.Descriptor{Size: table.BlobBytes()}}
	if err := partial.Create(root, id, spec, table); err != nil {
		t.Fatal(err)
	}
	source := silent{make(chan struct{}, restWorkers), make(chan struct{}, restWorkers)}
	f, err := partial.Open(root, id, partial.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	all := &files{cfg: Config{Root: root, Log: slog.New(slog.DiscardHandler)}, ctx: t.Context(), rest: make(chan struct{}, 1),
		by: map[layer.ID]*entry{id: {file: f}}}
	all.start([]layer.ID{id})
	<-source.asked
	if all.pass() {
		t.Error("it is idle while a file is missing")
	}
	if err := os.RemoveAll(filepath.Join(root, id.String())); err != nil {
		t.Fatal(err)
	}
	if !all.pass() {
		t.Error("it is not idle without a file")
	}
	<-source.left
	all.wg.Wait()
	if len(all.states()) > 0 || all.get(id.String()) != nil {
		t.Errorf("it still has %+v", all.states())
	}
}
