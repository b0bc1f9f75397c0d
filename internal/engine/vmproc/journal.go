package vmproc

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Files in a VM's run directory, besides those of vmctl/client.
const (
	Journal        = "vm.json"      // Record: written when the process exists
	SandboxJournal = "sandbox.json" // Info and CID: written before the sandbox is listed
	vmmLog         = "vmm.log"      // the VMM process's standard error
)

// maxJournal limits the size of a journal file that is read.
const maxJournal = 1 << 20

// JournalVersion is the version of every record. The run directory does not survive a reboot, so a
// record of another version counts as missing.
const JournalVersion = 3

// Record lets the next engine find a VMM process, to adopt or end it.
type Record struct {
	Version int          `json:"version"`         // JournalVersion; a record of another version counts as missing
	Ref     client.Ref   `json:"ref"`             // the process; Look replaces its Dir
	Shape   vmspec.Shape `json:"shape"`           // of the VM
	CID     uint32       `json:"cid"`             // the VM's vsock context ID
	Group   string       `json:"group,omitempty"` // its cgroup; empty if the daemon that started it had none
}

// WriteJSON writes a journal file completely or not at all. The run directory is a tmpfs, so the
// file must be consistent but need not be durable.
func WriteJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// ReadJSON reads a file written by WriteJSON.
func ReadJSON(path string, v any) error {
	b, err := durable.ReadFile(path, maxJournal)
	if err != nil {
		return fmt.Errorf("read journal %s: %w", path, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read journal %s: %w", path, err)
	}
	return nil
}
