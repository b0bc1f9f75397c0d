// Vulncheck runs govulncheck over this module. It reads the Go vulnerability database from the
// module golang.org/x/vulndb, so it needs only the Go module proxy and no other host. It exits with
// govulncheck's code: 3 if the code calls a vulnerable function.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const (
	scanner  = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	database = "golang.org/x/vulndb@latest"
)

func main() {
	err := check(os.Args[1:])
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

// check writes the database's index into a temporary directory and runs govulncheck with it.
func check(patterns []string) error {
	module, err := download()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vulndb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := index(filepath.Join(module, "data", "osv"), dir); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "vulncheck: database", filepath.Base(module))
	cmd := exec.Command("go", append([]string{"run", scanner, "-db", "file://" + dir}, patterns...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// download returns the directory of the database's module.
func download() (dir string, err error) {
	out, err := exec.Command("go", "mod", "download", "-json", database).Output()
	var m struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr != nil || m.Error != "" {
		return "", fmt.Errorf("download %s: %w", database, errors.Join(err, jsonErr, errors.New(m.Error)))
	}
	return m.Dir, err
}

// report holds the fields of a database entry that the index needs:
// https://ossf.github.io/osv-schema.
type report struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	} `json:"affected"`
}

// listed is an entry of a module in the index.
type listed struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
}

// module is a line of index/modules.json: https://go.dev/doc/security/vuln/database#api.
type module struct {
	Path  string   `json:"path"`
	Vulns []listed `json:"vulns"`
}

// index writes an index of the reports, in version 1 of the database's API.
func index(reports, dir string) error {
	err := errors.Join(os.Symlink(reports, filepath.Join(dir, "ID")), os.Mkdir(filepath.Join(dir, "index"), 0o755))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(reports, "GO-*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no reports in %s: %w", reports, err)
	}
	var newest time.Time
	byPath := map[string][]listed{}
	for _, file := range files {
		r, err := read(file)
		if err != nil {
			return err
		}
		if r.Modified.After(newest) {
			newest = r.Modified
		}
		for _, a := range r.Affected {
			vulns := byPath[a.Package.Name]
			if !slices.ContainsFunc(vulns, func(v listed) bool { return v.ID == r.ID }) {
				byPath[a.Package.Name] = append(vulns, listed{r.ID, r.Modified})
			}
		}
	}
	return errors.Join(write(dir, "modules", modules(byPath)), write(dir, "db", map[string]time.Time{"modified": newest}))
}

func modules(byPath map[string][]listed) (all []module) {
	for path, vulns := range byPath {
		all = append(all, module{path, vulns})
	}
	return all
}

func read(file string) (r report, err error) {
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func write(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "index", name+".json"), b, 0o644)
}
