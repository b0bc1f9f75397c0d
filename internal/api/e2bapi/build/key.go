package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
)

// Context holds the settings with which programs run, as changed by the steps up to now. Empty
// fields mean the base's settings.
type Context struct {
	// User is the guest's user that runs programs.
	User string `json:"user,omitempty"`
	// Workdir is the absolute path in which programs start.
	Workdir string `json:"workdir,omitempty"`
	// Env holds variables by name. Values are already expanded.
	Env map[string]string `json:"env,omitempty"`
}

func (c Context) empty() bool { return c.User == "" && c.Workdir == "" && len(c.Env) == 0 }

// with returns the context with additional variables, which override its own.
func (c Context) with(env map[string]string) Context {
	merged := maps.Clone(c.Env)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, env)
	c.Env = merged
	return c
}

// keyOf returns a digest of texts in order. Two different lists of texts do not have the same
// digest by chance.
func keyOf(parts ...any) string {
	b, _ := json.Marshal(parts) // texts and numbers: never fails
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// key returns the key of a group's layer on top of another. files are the digests of copied files.
func (g group) key(below string, files map[string]string) string {
	parts := []any{"layer", below}
	for _, s := range g.steps {
		parts = append(parts, s.Type, s.Args, files[s.FilesHash])
	}
	return keyOf(parts...)
}
