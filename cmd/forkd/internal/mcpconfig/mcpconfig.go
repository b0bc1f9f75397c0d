// Package mcpconfig writes the entry of forkd's MCP server into the configuration of MCP clients. It
// knows where each client has its file, and the form of its JSON. It changes one entry only, and
// keeps the order and the numbers of all others. `forkd mcp config` is its only caller. The trap: a
// client may rewrite its file when it ends, so it should not run meanwhile.
package mcpconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Entry is the configuration of a server that a client starts.
type Entry struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// Host describes the host of a client.
type Host struct {
	OS      string // as runtime.GOOS
	Home    string // the user's home directory
	AppData string // on Windows: the roaming application data
	Config  string // XDG_CONFIG_HOME; may be empty
	Dir     string // the current directory, for clients with a file per project
}

// Client is an MCP client.
type Client struct {
	Name string
	key  string // of the object with the servers
	kind string // the entry's type; empty if the client wants none
	file func(Host) string
}

// Clients returns the known clients, sorted by name.
func Clients() []Client {
	return []Client{
		{Name: "claude-code", key: "mcpServers", kind: "stdio", file: func(h Host) string {
			return filepath.Join(h.Dir, ".mcp.json")
		}},
		{Name: "claude-desktop", key: "mcpServers", file: func(h Host) string {
			return h.app("Claude", "claude_desktop_config.json")
		}},
		{Name: "cline", key: "mcpServers", file: func(h Host) string {
			return h.app("Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json")
		}},
		{Name: "cursor", key: "mcpServers", file: func(h Host) string { return filepath.Join(h.Home, ".cursor", "mcp.json") }},
		{Name: "vscode", key: "servers", kind: "stdio", file: func(h Host) string { return h.app("Code", "User", "mcp.json") }},
	}
}

// app returns a file in the directory of applications' configuration.
func (h Host) app(parts ...string) string {
	base := h.Config
	switch {
	case h.OS == "darwin":
		base = filepath.Join(h.Home, "Library", "Application Support")
	case h.OS == "windows":
		base = h.AppData
	case base == "":
		base = filepath.Join(h.Home, ".config")
	}
	return filepath.Join(append([]string{base}, parts...)...)
}

// Find returns the client with a name.
func Find(name string) (Client, error) {
	all := Clients()
	i := slices.IndexFunc(all, func(c Client) bool { return c.Name == name })
	if i < 0 {
		var names []string
		for _, c := range all {
			names = append(names, c.Name)
		}
		return Client{}, fmt.Errorf("there is no client %q; the clients are %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// File returns the path of the client's configuration.
func (c Client) File(h Host) string { return c.file(h) }

// Merge returns the client's configuration with the entry. old is the present configuration, which
// may be empty. Merge returns an error if old is not plain JSON of the expected form.
func (c Client) Merge(old []byte, name string, e Entry) ([]byte, error) {
	e.Type = c.kind
	entry, err := marshal(e)
	if err != nil {
		return nil, err
	}
	whole := object{}
	if len(bytes.TrimSpace(old)) > 0 {
		if whole, err = parse(old); err != nil {
			return nil, err
		}
	}
	servers := object{}
	if present := whole.get(c.key); present != nil && string(present) != "null" {
		if servers, err = parse(present); err != nil {
			return nil, fmt.Errorf("%q in it: %w", c.key, err)
		}
	}
	whole = whole.set(c.key, servers.set(name, entry).bytes())
	var out bytes.Buffer
	if err := json.Indent(&out, whole.bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
