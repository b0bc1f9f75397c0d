package home

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/store/dataformat"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/receipt"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/store/volume"
	"github.com/forkd/forkd/internal/sys/rundir"
)

// Home holds an engine's directories, open and locked, and the stores in them.
type Home struct {
	Run *rundir.Dir // the run directory
	VMs *rundir.Dir // the VMs' directory in it

	Layers    *store.Store       // of the snapshots' memory and disks
	Snapshots *snapshot.Store    // manifests and states, over Layers
	Receipts  *receipt.Store     // of operations
	Volumes   *volume.Store      // tenants' volumes
	Networks  *privatenets.Store // tenants' private networks

	store string
	locks []*os.File // on both directories, held until Close
}

// Options configure Open.
type Options struct {
	Reserve int64  // bytes of the store's disk that layers leave free
	Program string // version of the program, for the mark of the store directory
	Now     func() time.Time
	Log     *slog.Logger
}

// Open opens the store directory and the run directory. Only one engine can use each. A store
// directory of a newer program is refused with an error that wraps dataformat.ErrNewer.
func Open(storeDir, runDir string, opt Options) (_ *Home, err error) {
	h := &Home{store: storeDir}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if err := h.openDirs(runDir); err != nil {
		return nil, Refusal(err)
	}
	if err := dataformat.Raise(storeDir, opt.Program); err != nil {
		return nil, err
	}
	if h.Layers, err = store.Open(h.LayersDir(), store.Options{Reserve: opt.Reserve}); err != nil {
		return nil, err
	}
	if h.Snapshots, err = snapshot.OpenStore(filepath.Join(storeDir, "snapshots"), h.Layers); err != nil {
		return nil, err
	}
	if h.Receipts, err = receipt.Open(filepath.Join(storeDir, "receipts"), receipt.Limits{}); err != nil {
		return nil, err
	}
	h.Volumes, err = volume.Open(volume.Config{Dir: filepath.Join(storeDir, "volumes"), Pins: h.Layers, Now: opt.Now,
		Log: opt.Log})
	if err != nil {
		return nil, err
	}
	if h.Networks, err = privatenets.Open(filepath.Join(storeDir, "networks.json"), opt.Now); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Home) openDirs(runDir string) (err error) {
	if err := rundir.CheckData(h.store); err != nil {
		return err
	}
	if h.Run, err = rundir.Open(runDir); err != nil {
		return err
	}
	if h.VMs, err = h.Run.Sub(vmproc.VMsName); err != nil {
		return err
	}
	if err := h.lock(h.store, func() (*os.File, error) { return rundir.LockData(h.store) }); err != nil {
		return err
	}
	return h.lock(runDir, h.Run.Lock)
}

// Refusal converts an error about an unusable directory to a conflict. It returns other errors
// unchanged.
func Refusal(err error) error {
	if errors.Is(err, rundir.ErrRefused) {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDirectoryRefused, "%w", err)
	}
	return err
}

// lock ensures that no other engine uses the directory.
func (h *Home) lock(dir string, take func() (*os.File, error)) error {
	f, err := take()
	if errors.Is(err, os.ErrExist) {
		return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDirectoryInUse,
			"another daemon uses %s", dir)
	}
	if err != nil {
		return err
	}
	h.locks = append(h.locks, f)
	return nil
}

// LayersDir returns the directory of the layers.
func (h *Home) LayersDir() string { return filepath.Join(h.store, "layers") }

// OverlaysDir returns the directory of the running sandboxes' disks.
func (h *Home) OverlaysDir() string { return filepath.Join(h.store, "own") }

// PausedDir returns the directory of the records of paused sandboxes.
func (h *Home) PausedDir() string { return filepath.Join(h.store, "paused") }

// RanFile returns the file that lists the running sandboxes.
func (h *Home) RanFile() string { return filepath.Join(h.store, "ran.json") }

// DrainFile returns the file of an order to drain the daemon.
func (h *Home) DrainFile() string { return filepath.Join(h.store, "drain.json") }

// PoolsFile returns the file that stores the pools' sizes.
func (h *Home) PoolsFile() string { return filepath.Join(h.store, "pools.json") }

// Close releases the directories for another engine. Their content stays.
func (h *Home) Close() {
	for _, d := range []*rundir.Dir{h.VMs, h.Run} {
		if d != nil {
			d.Close()
		}
	}
	for _, f := range h.locks {
		f.Close()
	}
	h.locks = nil
}
