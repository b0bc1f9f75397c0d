package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Defaults are the settings of programs that are started without their own. Empty fields do not
// change.
type Defaults struct {
	Env     map[string]string `json:"env,omitempty"` // added to the present variables
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"` // absolute
}

// SetDefaults changes the defaults of a sandbox, and of all later forks of it.
func (c *connection) SetDefaults(ctx context.Context, id string, d Defaults) error {
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("set defaults: %w", err)
	}
	return c.post(ctx, sandboxPath(id, "/agent/defaults"), bytes.NewReader(b))
}

// MakeDir makes a directory in a sandbox, and the missing ones above it. An existing directory is no
// error.
func (c *connection) MakeDir(ctx context.Context, id, path, user string) error {
	return c.tree(id, user).makeDir(ctx, path)
}
