package defaults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"github.com/forkd/forkd/internal/leaf/environ"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Change merges c into the image's defaults. Its variables override the present ones, and it
// replaces user and working directory if c sets them. It also changes the file at path, from which
// the image was loaded, so a later boot has the same defaults. The host's keys in that file stay.
func (r *Record) Change(c Image, path string) error {
	if err := environ.Check(c.Env); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := Image{Env: maps.Clone(r.image.Env), User: r.image.User, Workdir: r.image.Workdir}
	if next.Env == nil {
		next.Env = map[string]string{}
	}
	maps.Copy(next.Env, c.Env)
	if c.User != "" {
		next.User = c.User
	}
	if c.Workdir != "" {
		next.Workdir = c.Workdir
	}
	if err := rewrite(path, next); err != nil {
		return fmt.Errorf("change image metadata: %w", err)
	}
	r.image = next
	return nil
}

// rewrite changes the agent's keys in an image's metadata.
func rewrite(path string, im Image) error {
	all := map[string]any{}
	b, err := durable.ReadFile(path, maxImageFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(b, &all); err != nil {
			return err
		}
	}
	for k, v := range map[string]any{"env": im.Env, "user": im.User, "workdir": im.Workdir} {
		all[k] = v
	}
	if b, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	if len(b) > maxImageFile {
		return fmt.Errorf("it has %d bytes, more than %d", len(b), maxImageFile)
	}
	if err := durable.Replace(path, b); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}
