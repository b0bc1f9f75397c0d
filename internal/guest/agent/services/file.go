package services

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
	"github.com/forkd/forkd/internal/sys/durable"
)

// kept is a service in the file.
type kept struct {
	Spec servicespec.Spec `json:"spec"`           // its declaration
	Held bool             `json:"held,omitempty"` // stopped by request
}

// save writes the declarations. If that fails, as on a full disk, the services run all the same: only a
// boot from the disk alone does not find them.
func (s *Supervisor) save() {
	if s.cfg.File == "" {
		return
	}
	if err := s.write(); err != nil {
		s.cfg.Log("services are not kept for a boot: %v", err)
	}
}

// write writes the file. A branch or a pause captures it with the page cache, so it is not synced here.
func (s *Supervisor) write() error {
	s.mu.Lock()
	defer s.mu.Unlock() // also orders two writers
	var all []kept
	for _, st := range s.listLocked().Services {
		all = append(all, kept{st.Spec, s.all[st.Spec.Name].held})
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.cfg.File), 0o755); err != nil {
		return err
	}
	part := s.cfg.File + ".part"
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return err
	}
	if err := os.Rename(part, s.cfg.File); err != nil {
		return err
	}
	return nil
}

// load starts the services of the file.
func (s *Supervisor) load() error {
	if s.cfg.File == "" {
		return nil
	}
	b, err := durable.ReadFile(s.cfg.File, servicewire.MaxSpecBytes)
	if err != nil {
		return err
	}
	var all []kept
	if err := json.Unmarshal(b, &all); err != nil {
		return fmt.Errorf("read %s: %w", s.cfg.File, err)
	}
	specs := make([]servicespec.Spec, 0, len(all))
	for _, k := range all {
		specs = append(specs, k.Spec)
	}
	if err := servicespec.CheckAll(specs); err != nil {
		return fmt.Errorf("read %s: %w", s.cfg.File, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range all {
		v := newService(k.Spec)
		v.held = k.Held
		s.all[k.Spec.Name] = v
		if !k.Held {
			s.startLocked(v)
		}
	}
	return nil
}
