// Package freepages decides from when on the guest's kernel reports free memory to the host, by
// taking the balloon's driver off its device and putting it back. Reports cost a clone that does
// nothing much: the kernel goes over its free memory in steps, two seconds apart, and writes to the
// account of each block. So a snapshot is made without the driver, and a clone gets it when
// something in it has used much memory; then there will be much to give back. It owns the driver's
// two files in sysfs. The trap: it looks only when something has ended, since a clone that does
// nothing must not be woken, so who ends something with memory must say so.
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

// Much is what has to be used before reports are worth it, in bytes: the kernel reports blocks of 2
// and 4 MiB, and the account of all memory is a thousandth of it.
const Much = 64 << 20

const driver = "sys/bus/virtio/drivers/virtio_balloon"

// Reporter has the kernel report, or not.
type Reporter struct {
	dir    string // of the driver
	log    func(string, ...any)
	memory func() (free int64)

	mu     sync.Mutex // guards what follows
	device string     // that the driver was taken off; empty: there is nothing to do
	free   int64      // memory that was free then, in bytes
}

// New makes a Reporter that has done nothing yet: the kernel reports if it has the driver.
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

// Off ends the kernel's reports until much memory is used. A guest without a balloon has none.
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

// bound is the device that the driver has; empty: none.
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

// Look lets the kernel report if that is off and much was used: something had so many bytes, or so
// much less is free.
func (r *Reporter) Look(had int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.device == "" || had < Much && r.free-r.memory() < Much {
		return
	}
	if err := r.write("bind", r.device); err != nil {
		r.log("give the balloon its driver: %v", err)
	}
	r.device = "" // once is enough, also if it failed
}
