package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/vmmctl"
	"github.com/forkd/forkd/internal/vmspec"
)

// Files in a VM's run directory, beside those of vmmctl.
const (
	vmJournal  = "vm.json"      // vmRecord: written when the process exists
	boxJournal = "sandbox.json" // Info and CID: written before the sandbox is listed
	vmmLog     = "vmm.log"      // the VMM process's standard error
)

// maxJournal bounds what is read back.
const maxJournal = 1 << 20

// journalVersion stands in every record. The run directory does not survive a
// reboot, so a record of another version is treated as one that is not there.
const journalVersion = 2

// vmRecord lets the next engine find a VMM process, to adopt or to end it.
type vmRecord struct {
	Version int          `json:"version"`
	Ref     vmmctl.Ref   `json:"ref"`
	Shape   vmspec.Shape `json:"shape"`
	CID     uint32       `json:"cid"`
}

// boxRecord is a sandbox that was or is about to be listed.
type boxRecord struct {
	Version int `json:"version"`
	// Dir is the name of the directory that the record is valid in; empty: any. A
	// rollback exchanges two directories, and only then does the record of the
	// new VM hold, and that of the old no more.
	Dir   string     `json:"dir,omitempty"`
	Info  Info       `json:"info"`
	Who   persona    `json:"who"`
	Disks []diskLine `json:"disks,omitempty"` // those that it writes to, in their order
}

// validIn reports whether the record is about the VM in that directory.
func (r boxRecord) validIn(dir string) bool {
	return r.Version == journalVersion && r.Info.ID != "" && (r.Dir == "" || r.Dir == filepath.Base(dir))
}

// writeJSON writes a journal file whole or not at all. The run directory is a
// tmpfs: it need not be durable, only consistent.
func writeJSON(path string, v any) error {
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

func readJSON(path string, v any) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() > maxJournal {
		return fmt.Errorf("journal %s has %d bytes, want at most %d", path, st.Size(), maxJournal)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read journal %s: %w", path, err)
	}
	return nil
}
