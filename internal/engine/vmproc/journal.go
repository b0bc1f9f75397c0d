package vmproc

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Files in a VM's run directory, beside those of vmctl/client.
const (
	Journal        = "vm.json"      // Record: written when the process exists
	SandboxJournal = "sandbox.json" // Info and CID: written before the sandbox is listed
	vmmLog         = "vmm.log"      // the VMM process's standard error
)

// maxJournal bounds what is read back.
const maxJournal = 1 << 20

// JournalVersion stands in every record. The run directory does not survive a
// reboot, so a record of another version is treated as one that is not there.
const JournalVersion = 3

// Record lets the next engine find a VMM process, to adopt or to end it.
type Record struct {
	Version int          `json:"version"`
	Ref     client.Ref   `json:"ref"`
	Shape   vmspec.Shape `json:"shape"`
	CID     uint32       `json:"cid"`
	Group   string       `json:"group,omitempty"` // its cgroup; empty: the daemon that began it had none
}

// WriteJSON writes a journal file whole or not at all. The run directory is a
// tmpfs: it need not be durable, only consistent.
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

// ReadJSON reads what WriteJSON wrote.
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
