package pages

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limit is the time for one command of a page. A command that serves until it is stopped is no
// example.
const limit = 10 * time.Minute

// shell is a shell of a user in a home directory of its own. Its state passes from one command to
// the next.
type shell struct {
	r    *run
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	real []string // what the shell has, each followed by its name in the pages
}

func newShell(t *testing.T, r *run, dir string) *shell {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.m.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, number, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{r: r}
	s.alias(r.m.Token, "<token>")
	s.alias(":"+number, port)
	s.alias(dir, home)
	s.alias(filepath.Join(bin, "forkd"), "/usr/bin/forkd")
	s.cmd = exec.Command("sh")
	s.cmd.Dir = dir
	cache, err := os.UserCacheDir() // it has the downloads for images
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Env = []string{"FORKD_URL=" + r.m.URL, "FORKD_TOKEN=" + r.m.Token, "HOME=" + dir, "TERM=dumb",
		"XDG_CACHE_HOME=" + cache, "PATH=" + bin + ":" + os.Getenv("PATH")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // end also ends what runs in the background
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// alias gives something of the shell another name in the pages.
func (s *shell) alias(here, page string) { s.real = append(s.real, here, page) }

// end ends the shell and its children.
func (s *shell) end() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait()
}

// run runs a command and returns its output, standard error included, as a page has it.
func (s *shell) run(t *testing.T, command string) (out string, code int) {
	t.Helper()
	const mark = "\x01end "
	for i := 0; i < len(s.real); i += 2 {
		command = strings.ReplaceAll(command, s.real[i+1], s.real[i])
	}
	if _, err := fmt.Fprintf(s.in, "{ %s\n} 2>&1 </dev/null; printf '\\001end %%d\\n' $?\n", command); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	timer := time.AfterFunc(limit, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	var all strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: no end within %s, or the shell ended: %v\n%s%s", command, limit, err, all.String(), line)
		}
		text, status, ended := strings.Cut(line, mark)
		all.WriteString(text)
		if !ended {
			continue
		}
		if code, err = strconv.Atoi(strings.TrimSpace(status)); err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer(s.real...).Replace(all.String()), code
	}
}
