package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
)

// Context is how programs run: what steps have said of it so far. Empty means the base's.
type Context struct {
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

func (c Context) empty() bool { return c.User == "" && c.Workdir == "" && len(c.Env) == 0 }

// with is the context with variables over its own.
func (c Context) with(env map[string]string) Context {
	merged := maps.Clone(c.Env)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, env)
	c.Env = merged
	return c
}

// keyOf is a digest of texts in their order; no two lists of texts give the same by chance.
func keyOf(parts ...any) string {
	b, _ := json.Marshal(parts) // texts and numbers: never fails
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// key is that of a group's layer on another. files are the digests of what is copied.
func (g group) key(below string, files map[string]string) string {
	parts := []any{"layer", below}
	for _, s := range g.steps {
		parts = append(parts, s.Type, s.Args, files[s.FilesHash])
	}
	return keyOf(parts...)
}
