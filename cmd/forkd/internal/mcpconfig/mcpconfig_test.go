package mcpconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var entry = Entry{Command: "/usr/bin/forkd", Args: []string{"mcp", "<&>"}}

func client(t *testing.T, name string) Client {
	t.Helper()
	c, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhereClientsHaveTheirFiles(t *testing.T) {
	linux := Host{OS: "linux", Home: "/home/u", Dir: "/work"}
	mac := Host{OS: "darwin", Home: "/Users/u", Dir: "/work"}
	windows := Host{OS: "windows", Home: "/u", AppData: "/u/AppData/Roaming", Dir: "/work"}
	for _, c := range []struct {
		client string
		host   Host
		want   string
	}{
		{"claude-code", linux, "/work/.mcp.json"},
		{"claude-desktop", linux, "/home/u/.config/Claude/claude_desktop_config.json"},
		{"claude-desktop", mac, "/Users/u/Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", windows, "/u/AppData/Roaming/Claude/claude_desktop_config.json"},
		{"cursor", mac, "/Users/u/.cursor/mcp.json"},
		{"vscode", linux, "/home/u/.config/Code/User/mcp.json"},
		{"vscode", windows, "/u/AppData/Roaming/Code/User/mcp.json"},
		{"cline", mac, "/Users/u/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
	} {
		if got := filepath.ToSlash(client(t, c.client).File(c.host)); got != c.want {
			t.Errorf("%s on %s: %s, want %s", c.client, c.host.OS, got, c.want)
		}
	}
	if _, err := Find("emacs"); err == nil || !strings.Contains(err.Error(), "claude-code") {
		t.Errorf("an unknown client: %v", err)
	}
}

func TestMergeKeepsAllElse(t *testing.T) {
	old := `{"z": 1e400, "mcpServers": {"other": {"command": "x", "n": 12345678901234567890}, "forkd": {"command": "old"}}, "a": "<é>"}`
	got, err := client(t, "cursor").Merge([]byte(old), "forkd", entry)
	want := `{
  "z": 1e400,
  "mcpServers": {
    "other": {
      "command": "x",
      "n": 12345678901234567890
    },
    "forkd": {
      "command": "/usr/bin/forkd",
      "args": [
        "mcp",
        "<&>"
      ]
    }
  },
  "a": "<é>"
}
`
	if err != nil || string(got) != want {
		t.Errorf("%v:\n%s", err, got)
	}
}

func TestVSCodeHasItsOwnForm(t *testing.T) {
	got, err := client(t, "vscode").Merge([]byte("\xef\xbb\xbf{}"), "forkd", entry)
	if err != nil || !strings.Contains(string(got), `"servers": {`) || !strings.Contains(string(got), `"type": "stdio"`) {
		t.Errorf("%v: %s", err, got)
	}
}

func TestInstallRefusesWhatIsNotJSON(t *testing.T) {
	for _, old := range []string{"{", "[]", "null", "{} {}", "// a comment\n{}", `{"a": 1,}`, `{"mcpServers": []}`,
		`{"mcpServers": "x"}`, `{"a": 1, "a": 2}`, `{"mcpServers": {"x": {}, "x": {}}}`, "\xff", `{"a": /* b */ 1}`} {
		file := filepath.Join(t.TempDir(), "c.json")
		write(t, file, old)
		if done, err := client(t, "cursor").Install(file, "forkd", entry); err == nil {
			t.Errorf("%q was changed: %+v", old, done)
		}
		if got := read0(t, file); got != old {
			t.Errorf("%q became %q", old, got)
		}
	}
}

func TestInstallKeepsABackup(t *testing.T) {
	dir := t.TempDir()
	real, file := filepath.Join(dir, "real.json"), filepath.Join(dir, "c.json")
	write(t, real, `{"mcpServers":{"other":{}}}`)
	if err := os.Symlink(real, file); err != nil {
		t.Fatal(err)
	}
	c := client(t, "cursor")
	done, err := c.Install(file, "forkd", entry)
	if err != nil || !done.Changed || done.Backup == "" || read0(t, done.Backup) != `{"mcpServers":{"other":{}}}` {
		t.Fatalf("%+v, %v", done, err)
	}
	if st, err := os.Lstat(file); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if st, err := os.Stat(real); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v", st.Mode())
	}
	if again, err := c.Install(file, "forkd", entry); err != nil || again.Changed {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	other := entry
	other.Command = "/elsewhere"
	if third, err := c.Install(file, "forkd", other); err != nil || third.Backup == done.Backup || !third.Changed {
		t.Errorf("a third time: %+v, %v", third, err)
	}
}

func TestInstallMakesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "dir", "c.json")
	if done, err := client(t, "vscode").Install(file, "forkd", entry); err != nil || !done.Changed || done.Backup != "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".forkd-part-*")); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// FuzzMerge: a merge succeeds only for an object, and a second one changes nothing.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{"{}", "", `{"mcpServers":{"a":{}},"b":[1,2]}`, `{"mcpServers":null}`, "[]", `{"\u0000":1}`} {
		f.Add(s)
	}
	c, err := Find("cursor")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, old string) {
		once, err := c.Merge([]byte(old), "forkd", entry)
		if err != nil {
			return
		}
		twice, err := c.Merge(once, "forkd", entry)
		if err != nil || string(once) != string(twice) {
			t.Errorf("%q: %v:\n%s\n%s", old, err, once, twice)
		}
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func read0(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
