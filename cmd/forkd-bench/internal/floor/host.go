package floor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/kvm"
)

// Upper limits of the measurements.
const (
	maxVMs  = 1000
	maxCopy = 1 << 30 // bytes
)

// OverFile calls VMs for n VMs of so many MiB. Their memory is one file in dir, as for the children
// of a snapshot.
func OverFile(device, dir string, n, memoryMiB int) (time.Duration, error) {
	if n < 1 || n > maxVMs || memoryMiB < 1 {
		return 0, fmt.Errorf("%d VMs of %d MiB, want 1 to %d of at least 1 MiB", n, memoryMiB, maxVMs)
	}
	system, err := kvm.Open(device)
	if err != nil {
		return 0, err
	}
	defer system.Close()
	size := int64(memoryMiB) << 20
	memory, err := memoryFile(dir, size)
	if err != nil {
		return 0, fmt.Errorf("make a file to map as memory: %w", err)
	}
	defer memory.Close()
	return VMs(VMsConfig{KVM: system, N: n, MemoryBytes: size, Memory: memory})
}

// memoryFile makes a sparse file without a name. It brings the page with the VMs' code into the
// page cache, as an earlier fork does with a snapshot's memory.
func memoryFile(dir string, size int64) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".forkd-floor-*")
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.Remove(f.Name()), f.Truncate(size))
	if err == nil {
		_, err = f.ReadAt(make([]byte, len(guestCode)), guestEntry)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Copy returns the time of a plain copy of so many bytes between buffers touched before. A pause
// with a copy of these bytes cannot be shorter.
func Copy(bytes int64) (time.Duration, error) {
	if bytes < 0 || bytes > maxCopy {
		return 0, fmt.Errorf("copy of %d bytes, want 0 to %d", bytes, maxCopy)
	}
	from, to := make([]byte, bytes), make([]byte, bytes)
	for i := 0; i < len(from); i += os.Getpagesize() {
		from[i], to[i] = 1, 1
	}
	start := time.Now()
	copy(to, from)
	return time.Since(start), nil
}

// Host is the state of a host at the time of a figure.
type Host struct {
	MemAvailableKiB int64 `json:"mem_available_kib"`
}

// ReadHost reads the current state.
func ReadHost() (Host, error) {
	free, err := hostproc.MemAvailable()
	return Host{MemAvailableKiB: free >> 10}, err
}

// StoreDir returns the daemon's data directory, which holds snapshots and sandboxes' disks. It
// derives it from the directory of a snapshot.
func StoreDir(snapshotDir string) string { return filepath.Dir(filepath.Dir(snapshotDir)) }
