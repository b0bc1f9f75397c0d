// Package deps tests scripts/deps.sh without an installation. It checks that the script finds the
// mirror in apt sources of either format, and enables backports on it only where they are needed.
// The trap: the script reads APT_DIR and OS_RELEASE from its environment, only for these tests.
package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// backports runs the script on a simulated host and returns the sources that it would add.
func backports(t *testing.T, codename string, files map[string]string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	files["os-release"] = "ID=debian\nVERSION_CODENAME=" + codename + "\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "../../scripts/deps.sh", "--backports")
	cmd.Env = append(os.Environ(), "APT_DIR="+dir, "OS_RELEASE="+filepath.Join(dir, "os-release"))
	out, err := cmd.Output()
	return string(out), err
}

const deb822 = `# the main archive
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
`

func TestBackportsAreAddedOnTheHostsOwnMirror(t *testing.T) {
	tests := []struct {
		name     string
		codename string
		files    map[string]string
		want     []string // lines to add; empty if the script adds none
	}{
		{"deb822", "bookworm", map[string]string{"sources.list.d/debian.sources": deb822},
			[]string{"Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm-backports", "Components: main", "Signed-By: /usr/share/keyrings/archive.gpg"}},
		{"one line", "bookworm", map[string]string{"sources.list": "# deb http://old.example bookworm main\ndeb-src http://src.example bookworm main\ndeb http://mirror.example/debian bookworm main contrib\n"},
			[]string{"Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm-backports", "Components: main"}},
		{"one line with options", "bookworm", map[string]string{"sources.list": "deb [ arch=amd64 signed-by=/k.gpg ] http://mirror.example/debian bookworm main\n"},
			[]string{"Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm-backports", "Components: main", "Signed-By: /k.gpg"}},
		{"values on continuation lines", "bookworm", map[string]string{"sources.list.d/a.sources": "Types: deb\nURIs:\n http://mirror.example/debian\nSuites:\n bookworm\n bookworm-updates\nComponents: main\n"},
			[]string{"Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm-backports", "Components: main"}},
		{"another vendor's source comes first", "bookworm", map[string]string{
			"sources.list.d/a.list": "deb http://vendor.example stable main\n", "sources.list.d/debian.sources": deb822},
			[]string{"Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm-backports", "Components: main", "Signed-By: /usr/share/keyrings/archive.gpg"}},
		{"enabled already", "bookworm", map[string]string{"sources.list.d/debian.sources": deb822, "sources.list.d/b.list": "deb http://x.example bookworm-backports main\n"}, nil},
		{"a disabled source does not count", "bookworm", map[string]string{"sources.list.d/debian.sources": deb822,
			"sources.list.d/b.sources": "Types: deb\nEnabled: no\nURIs: http://x.example\nSuites: bookworm-backports\nComponents: main\n"},
			[]string{"Types: deb", "URIs: http://mirror.example/debian", "Suites: bookworm-backports", "Components: main", "Signed-By: /usr/share/keyrings/archive.gpg"}},
		{"not needed on Debian 13", "trixie", map[string]string{"sources.list.d/debian.sources": strings.ReplaceAll(deb822, "bookworm", "trixie")}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := backports(t, tt.codename, tt.files)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Join(tt.want, "\n"); strings.TrimSpace(got) != want {
				t.Errorf("adds\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestAHostWithoutAMirrorIsAnError(t *testing.T) {
	if got, err := backports(t, "bookworm", map[string]string{"sources.list": "deb http://vendor.example stable main\n"}); err == nil {
		t.Errorf("adds %q", got)
	}
}
