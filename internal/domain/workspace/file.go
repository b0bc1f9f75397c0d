package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/sys/durable"
)

const (
	format      = 1
	maxFile     = 8 << 20 // bytes of the file: maxNames records of the longest names fit
	maxNames    = 10_000
	maxOfTenant = 1000
	minOfTenant = 10   // names that each tenant can have, regardless of other tenants
	maxBeyond   = 8000 // total above which no tenant can have more than that minimum
)

// idRE matches ids of sandboxes.
var idRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// record is a stored workspace.
type record struct {
	ID             string `json:"id"`
	Owner          string `json:"owner,omitempty"` // a tenant; empty for the operator
	Sandbox        string `json:"sandbox"`
	Source         string `json:"source"`          // tag of its original snapshot
	State          string `json:"state,omitempty"` // tag of its last suspend's snapshot
	MemoryLimitMiB int    `json:"memory_limit_mib,omitempty"`
	Created        int64  `json:"created"` // seconds since 1970, as Active
	Active         int64  `json:"active"`
}

// file is the whole file.
type file struct {
	Format     int               `json:"format"`
	Workspaces map[string]record `json:"workspaces"` // by name
}

func readFile(path string) (map[string]record, error) {
	b, err := durable.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]record{}, nil
	}
	if err != nil {
		return nil, err
	}
	return decode(b)
}

// decode reads and checks the file: a wrong record could refer to another tenant's sandbox.
func decode(b []byte) (map[string]record, error) {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Format != format {
		return nil, fmt.Errorf("format is %d, want %d", f.Format, format)
	}
	if len(f.Workspaces) > maxNames {
		return nil, fmt.Errorf("it has %d workspaces, at most %d can be", len(f.Workspaces), maxNames)
	}
	for name, r := range f.Workspaces {
		if err := r.check(name); err != nil {
			return nil, err
		}
	}
	if f.Workspaces == nil {
		f.Workspaces = map[string]record{}
	}
	return f.Workspaces, nil
}

func (r record) check(name string) error {
	if snapshot.CheckTag(name) != nil {
		return fmt.Errorf("%q is no name of a workspace", ellipsis.Clip(name, 80))
	}
	if !idRE.MatchString(r.ID) || !idRE.MatchString(r.Sandbox) || snapshot.CheckTag(r.Source) != nil ||
		r.State != "" && snapshot.CheckTag(r.State) != nil || r.MemoryLimitMiB < 0 {
		return fmt.Errorf("workspace %s: its record is damaged", name)
	}
	return nil
}

func writeFile(path string, all map[string]record) error {
	b, err := json.MarshalIndent(file{format, all}, "", "  ")
	if err != nil {
		return err
	}
	if len(b) >= maxFile {
		return fmt.Errorf("the file would be over %d MiB", maxFile>>20)
	}
	return durable.Rewrite(path, append(b, '\n'))
}
