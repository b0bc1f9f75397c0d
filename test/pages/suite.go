package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// parent creates the snapshot of all pages. It runs once: a page that shows it is compared with the
// output of that run.
const parent = "forkd snapshot create --image python-numpy --tag py"

// port is the daemon's port in the pages, and home the user's home directory.
const port, home = ":8889", "/home/ada"

// long has pages whose commands take too long for make test: they run in a soak (make soak).
var long = []string{
	"hub.md", // sends 115 MiB, and packs and unpacks them in the machine
}

// run is the run of the pages over a daemon.
type run struct {
	m      *harness.Machine
	parent string // the output of the parent's creation
	update bool   // write the real output into pages that differ
}

// Suite runs the pages' commands over the daemon of a machine with the image python-numpy. Without
// names it runs the README and half of the pages, which the seed draws, and in a soak or by hand all pages.
// FORKD_PAGES_UPDATE=1 writes the output into the pages.
func Suite(t *testing.T, m *harness.Machine, names ...string) {
	r := &run{m: m, update: os.Getenv("FORKD_PAGES_UPDATE") != ""}
	if slices.Contains(r.tags(t), "py") {
		m.Forkd(t, "snapshot", "rm", "--force", "py") // of an aborted run
	}
	s := newShell(t, r, t.TempDir())
	out, code := s.run(t, parent)
	if code != 0 {
		t.Fatalf("%s: exit code %d: %s", parent, code, out)
	}
	s.end()
	r.parent = out
	t.Cleanup(func() { m.Forkd(t, "snapshot", "rm", "py") })
	random := kvmtest.Random(kvmtest.Seed(t), 0)
	for _, name := range files(t) {
		page := filepath.Base(name)
		list, err := commands(read(t, name))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		drawn := !slices.Contains(long, page) && random.IntN(2) == 0
		chosen := soaks() || os.Getenv("FORKD_PAGES_URL") != "" || page == "README.md" || drawn
		if len(names) > 0 {
			chosen = slices.Contains(names, page)
		}
		if len(list) > 0 && chosen {
			t.Run(page, func(t *testing.T) { r.page(t, name, list) })
		}
	}
}

// files returns the README and the pages of docs/use.
func files(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..")
	list, err := filepath.Glob(filepath.Join(root, "docs", "use", "*.md"))
	if err != nil || len(list) < 20 {
		t.Fatalf("docs/use has %d pages, %v", len(list), err)
	}
	// The digests of the parent, which snapshots.md verifies, are computed meanwhile.
	last := slices.IndexFunc(list, func(name string) bool { return filepath.Base(name) == "snapshots.md" })
	list = slices.Concat(list[:last], list[last+1:], list[last:last+1])
	return append([]string{filepath.Join(root, "README.md")}, list...)
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func soaks() bool { return os.Getenv(kvmtest.SoakVariable) != "" }

// page runs a page's commands in a shell.
func (r *run) page(t *testing.T, name string, list []command) {
	r.forget(t, list)
	others := append(r.tags(t), r.sandboxes(t)...)
	s := newShell(t, r, t.TempDir())
	defer r.clean(t, others)
	defer s.end()
	m := newIDs()
	s.prepare(t, filepath.Base(name), m)
	var changed []change
	for _, c := range list {
		got, code := s.command(t, c, m)
		if code != 0 && c.output == "" && !r.update { // other failures are in the page's output
			t.Fatalf("line %d: %s: exit code %d\n%s", c.line, c.run, code, got)
		}
		got = without(got, others)
		err := match(c.output, got, m)
		if err == nil {
			continue
		}
		if !r.update {
			t.Errorf("line %d: %s: %v\nprinted:\n%s\nthe page has:\n%s", c.line, c.run, err, got, c.output)
		}
		changed = append(changed, change{c, replaceIDs(got, m.page)})
	}
	if r.update {
		write(t, name, changed)
	}
}

// command runs a command of a page. A sandbox that no command before printed is forked first.
func (s *shell) command(t *testing.T, c command, m ids) (got string, code int) {
	t.Helper()
	if c.run == parent {
		return s.r.parent, 0
	}
	for _, id := range unknown(c.run, m.run) {
		sandbox := strings.TrimSpace(string(s.r.m.Forkd(t, "-q", "fork", "py")))
		m.bind(id, strings.TrimPrefix(sandbox, "sb-"))
	}
	return s.run(t, replaceIDs(c.run, m.run))
}

// foreign matches the first word of a line, after the lines of a drawing.
var foreign = regexp.MustCompile(`^[│├└─ ]*(\S+)`)

// without removes the lines of snapshots and sandboxes that are not the page's.
func without(text string, others []string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool {
		word := foreign.FindStringSubmatch(line)
		return word != nil && word[1] != "py" && slices.Contains(others, word[1])
	}), "")
}

func (r *run) tags(t *testing.T) []string {
	return strings.Fields(string(r.m.Forkd(t, "-q", "snapshot", "ls")))
}

func (r *run) sandboxes(t *testing.T) []string {
	return strings.Fields(string(r.m.Forkd(t, "-q", "ps")))
}

// made matches the tags of snapshots that a command makes.
var made = regexp.MustCompile(`(?:--tag|image build -t|--to) (\S+)`)

// forget removes the snapshots of a page that an aborted run left behind.
func (r *run) forget(t *testing.T, list []command) {
	left := r.tags(t)
	for _, c := range list {
		for _, tag := range made.FindAllStringSubmatch(c.run, -1) {
			if i := slices.Index(left, tag[1]); i >= 0 && c.run != parent {
				r.m.Forkd(t, "snapshot", "rm", "--force", tag[1])
				left = slices.Delete(left, i, i+1)
			}
		}
	}
}

// clean removes the sandboxes and snapshots of a page.
func (r *run) clean(t *testing.T, others []string) {
	isOther := func(name string) bool { return slices.Contains(others, name) }
	if ids := slices.DeleteFunc(r.sandboxes(t), isOther); len(ids) > 0 {
		r.m.Forkd(t, append([]string{"kill"}, ids...)...)
	}
	for _, tag := range slices.DeleteFunc(r.tags(t), isOther) {
		r.m.Forkd(t, "snapshot", "rm", "--force", tag)
	}
}

// change is a command with another output than the page's.
type change struct {
	command
	got string
}

// write puts the real output into a page.
func write(t *testing.T, name string, changed []change) {
	t.Helper()
	page := strings.Split(read(t, name), "\n")
	for _, c := range slices.Backward(changed) {
		from := c.line - 1 + c.lines
		page = slices.Replace(page, from, from+strings.Count(c.output, "\n"), lines(c.got)...)
	}
	if err := os.WriteFile(name, []byte(strings.Join(page, "\n")), 0o600); err != nil {
		t.Fatal(fmt.Errorf("update %s: %w", name, err))
	}
}
