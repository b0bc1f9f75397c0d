package tenancy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/sys/durable"
)

const (
	weightsFormat = 1
	maxWeights    = 4 << 20 // bytes of the file
	maxTenants    = 10_000  // tenants with a weight
)

// Weights are the tenants' shares of CPU time, each for all of a tenant's sandboxes together. The operator sets
// them, and they are kept in a file. A nil Weights has the default for each tenant.
type Weights struct {
	path  string
	apply func(tenant string, weight int) error

	mu sync.Mutex // guards of; held while a weight is applied and the file is written
	of map[string]int
}

// weightsFile is the whole file; see docs/inside/formats/keys.md.
type weightsFile struct {
	Format  int                     `json:"format"`
	Tenants map[string]tenantRecord `json:"tenants"`
}

type tenantRecord struct {
	CPUWeight int `json:"cpu_weight"`
}

// OpenWeights reads the file at path. The file may be missing. apply sets the CPU weight of a tenant's sandboxes;
// it is nil if the host has no support for weights.
func OpenWeights(path string, apply func(tenant string, weight int) error) (*Weights, error) {
	w := &Weights{path: path, apply: apply, of: map[string]int{}}
	b, err := durable.ReadFile(path, maxWeights)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		w.of, err = decodeWeights(b)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return w, nil
}

func decodeWeights(b []byte) (map[string]int, error) {
	var f weightsFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Format != weightsFormat {
		return nil, fmt.Errorf("format is %d, want %d", f.Format, weightsFormat)
	}
	if len(f.Tenants) > maxTenants {
		return nil, fmt.Errorf("there are %d tenants, want at most %d", len(f.Tenants), maxTenants)
	}
	of := map[string]int{}
	for tenant, r := range f.Tenants {
		if err := checkWeight(tenant, r.CPUWeight); err != nil {
			return nil, err
		}
		of[tenant] = r.CPUWeight
	}
	return of, nil
}

func checkTenant(tenant string) error {
	if !keys.IsTenant(tenant) {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "tenant %.80q: want 1 to 24 small letters, digits or _", tenant)
	}
	return nil
}

func checkWeight(tenant string, weight int) error {
	if err := checkTenant(tenant); err != nil {
		return err
	}
	if weight < 1 || weight > sandbox.MaxCPUWeight {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the CPU weight of tenant %s is %d, want 1 to %d", tenant, weight,
			sandbox.MaxCPUWeight)
	}
	return nil
}

// Apply applies all weights, for a daemon that has just started. It returns the first error, but applies the
// remaining weights, too.
func (w *Weights) Apply() (first error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tenant, weight := range w.of {
		if err := w.applyLocked(tenant, weight); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (w *Weights) applyLocked(tenant string, weight int) error {
	if w.apply == nil {
		return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonLimitUnsupported,
			"the CPU weight of tenant %s cannot be enforced on this host: the daemon has no cgroup v2 to make groups in",
			tenant)
	}
	if err := w.apply(tenant, weight); err != nil {
		return fmt.Errorf("set the CPU weight of tenant %s: %w", tenant, err)
	}
	return nil
}

// Of returns a tenant's weight.
func (w *Weights) Of(tenant string) (int, error) {
	if err := checkTenant(tenant); err != nil || w == nil {
		return sandbox.DefaultCPUWeight, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if weight, ok := w.of[tenant]; ok {
		return weight, nil
	}
	return sandbox.DefaultCPUWeight, nil
}

// Set sets a tenant's weight. It takes effect immediately and is kept for the next daemon.
func (w *Weights) Set(tenant string, weight int) error {
	if err := checkWeight(tenant, weight); err != nil {
		return err
	}
	if w == nil {
		return sandbox.Errorf(sandbox.ErrUnsupported, "", "this daemon has no file for the weights of tenants")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := maps.Clone(w.of)
	delete(next, tenant)
	if weight != sandbox.DefaultCPUWeight {
		next[tenant] = weight
	}
	if len(next) > maxTenants {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "%d tenants have a weight of their own already", maxTenants)
	}
	if err := w.applyLocked(tenant, weight); err != nil {
		return err
	}
	if err := w.write(next); err != nil {
		before, ok := w.of[tenant]
		if !ok {
			before = sandbox.DefaultCPUWeight
		}
		return errors.Join(err, w.applyLocked(tenant, before))
	}
	w.of = next
	return nil
}

func (w *Weights) write(of map[string]int) error {
	f := weightsFile{Format: weightsFormat, Tenants: map[string]tenantRecord{}}
	for tenant, weight := range of {
		f.Tenants[tenant] = tenantRecord{CPUWeight: weight}
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Rewrite(w.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the weights of tenants: %w", err)
	}
	return nil
}
