// Package freepages controls when the guest's kernel reports free memory to the host: it unbinds
// the balloon's driver from its device and binds it again. Reports are expensive for an idle clone:
// the kernel walks its free memory in steps, two seconds apart, and writes to the metadata of each
// block. So a snapshot is made without the driver. A clone binds it after a program has used much
// memory, because then much can be returned. The package writes to the driver's two files in sysfs.
//
// It checks memory only in Look, because it must not wake an idle clone. Call Look when a process
// with memory has ended.
package freepages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Much is the memory use, in bytes, from which reports pay off. The kernel reports blocks of 2 and
// 4 MiB, and the metadata of all memory is a thousandth of its size.
const Much = 64 << 20

const driver = "sys/bus/virtio/drivers/virtio_balloon"

// Reporter switches the kernel's reports on and off.
type Reporter struct {
	dir    string // directory of the driver
	log    func(string, ...any)
	memory func() (free int64)

	mu     sync.Mutex // guards the fields below
	device string     // device without driver; empty if reports are on
	free   int64      // free memory when reports were switched off, in bytes
}

// New returns a Reporter. It changes nothing yet: the kernel reports if the driver is bound.
func New(root string, log func(string, ...any)) *Reporter {
	return &Reporter{dir: filepath.Join(root, driver), log: log, memory: freeMemory}
}

func freeMemory() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Freeram) * int64(s.Unit)
}

// Off stops the kernel's reports until much memory is used. It does nothing in a guest without a
// balloon.
func (r *Reporter) Off() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.device == "" {
		name, err := r.bound()
		if err != nil || name == "" {
			return err
		}
		if err := r.write("unbind", name); err != nil {
			return err
		}
		r.device = name
	}
	r.free = r.memory()
	return nil
}

// Saved is the state of a Reporter for a later program.
type Saved struct {
	Device string `json:"device"` // without driver; empty if reports are on
	Free   int64  `json:"free"`   // free memory when reports were switched off, in bytes
}

// Save returns the state.
func (r *Reporter) Save() Saved {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Saved{r.device, r.free}
}

// Restore sets the state of Save.
func (r *Reporter) Restore(s Saved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.device, r.free = s.Device, s.Free
}

// bound returns the device bound to the driver, or "".
func (r *Reporter) bound() (string, error) {
	list, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the balloon: %w", err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), "virtio") {
			return e.Name(), nil
		}
	}
	return "", nil
}

func (r *Reporter) write(file, name string) error {
	f, err := os.OpenFile(filepath.Join(r.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(name)
	return errors.Join(err, f.Close())
}

// Look switches reports on again if they are off and much memory was used: either had, the peak
// memory of a process in bytes, is at least Much, or free memory has shrunk by at least Much.
func (r *Reporter) Look(had int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.device == "" || had < Much && r.free-r.memory() < Much {
		return
	}
	if err := r.write("bind", r.device); err != nil {
		r.log("give the balloon its driver: %v", err)
	}
	r.device = "" // also after a failure: there is only one attempt
}
