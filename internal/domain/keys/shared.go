package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// sharedEvery is the interval of looks at the shared file.
const sharedEvery = 2 * time.Second

// follow reads the shared file until ctx ends. If it becomes invalid, the former keys stay valid: otherwise a
// mistake in the file would end the work of all tenants.
func (s *Store) follow(ctx context.Context) {
	tick := time.NewTicker(sharedEvery)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		before := s.text
		err := s.readShared()
		if err == nil && !bytes.Equal(before, s.text) {
			s.publish(s.all)
			s.cfg.Log.Info("the shared keys have changed", "keys", len(s.shared))
		}
		s.mu.Unlock()
		if err == nil {
			said = ""
		} else if text := err.Error(); text != said {
			said = text
			s.cfg.Log.Error("the shared keys are not used; the former ones stay valid", "error", err)
		}
	}
}

// readShared reads the shared file into s.shared. The caller must hold mu, except while s is being opened, and must
// publish the keys.
func (s *Store) readShared() error {
	if s.cfg.Shared == "" {
		return nil
	}
	b, err := readMounted(s.cfg.Shared)
	if err != nil {
		return err
	}
	if s.text != nil && bytes.Equal(b, s.text) {
		return nil
	}
	all, err := decode(b)
	if err != nil {
		return fmt.Errorf("%s: %w", s.cfg.Shared, err)
	}
	before := map[string]*entry{}
	for _, e := range s.shared {
		before[e.ID] = e
	}
	for _, e := range all { // what the daemon has counted for a key goes on
		if was := before[e.ID]; was != nil {
			e.used = was.used
			if e.Quotas == was.Quotas {
				e.requests = was.requests
			}
		}
	}
	s.shared, s.text = all, b
	return nil
}

// readMounted reads a file which may be a link, as in a mounted Secret of Kubernetes. The file has digests of keys
// only, so others may read it.
func readMounted(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s: other users can write it (mode %04o)", path, info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = errors.New("the file is too large")
	}
	return b, err
}
