package enginefake

import (
	"path/filepath"

	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	layers "github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

// Snapshots returns the directory of the snapshots.
func (h *Host) Snapshots() string { return filepath.Join(h.Cfg.StoreDir, "snapshots") }

// Layers opens the store of the layers, beside an engine that may have it open.
func Layers(h *Host) *layers.Store {
	h.T.Helper()
	s, err := layers.Open(filepath.Join(h.Cfg.StoreDir, "layers"), layers.Options{})
	if err != nil {
		h.T.Fatal(err)
	}
	return s
}

// Files opens the files of a snapshot. The caller closes them.
func (h *Host) Files(tag string) *snapshot.Files {
	h.T.Helper()
	f, err := snapshot.Peek(h.Snapshots(), Layers(h), tag)
	if err != nil {
		h.T.Fatal(err)
	}
	return f
}

// Manifest returns the manifest of a snapshot.
func (h *Host) Manifest(tag string) *snapshot.Manifest {
	h.T.Helper()
	f := h.Files(tag)
	defer f.Close()
	return f.Manifest
}

// AgentOf returns the agent's description in a snapshot's manifest.
func (h *Host) AgentOf(tag string) snapshot.Agent {
	h.T.Helper()
	return h.Manifest(tag).Agent
}

// Journal returns the record of a running sandbox, and the run directory of its VM.
func (h *Host) Journal(id string) (dir string, rec sandboxes.Record) {
	h.T.Helper()
	dirs, _ := filepath.Glob(filepath.Join(h.Cfg.RunDir, vmproc.VMsName, "*"))
	for _, dir := range dirs {
		var rec sandboxes.Record
		if vmproc.ReadJSON(filepath.Join(dir, vmproc.SandboxJournal), &rec) != nil {
			continue
		}
		if rec.Info.ID == id && (rec.Dir == "" || rec.Dir == filepath.Base(dir)) {
			return dir, rec
		}
	}
	h.T.Fatalf("no VM is of sandbox %s", id)
	return "", sandboxes.Record{}
}
