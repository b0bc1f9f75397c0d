package sftpcmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pkg/sftp"
)

// TestMain runs the server in a child process.
func TestMain(m *testing.M) {
	if code, known := Run(os.Args[0]); known {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// start runs the program with this home, and returns a client of it.
func start(t *testing.T, home string) *sftp.Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Cmd{Path: self, Args: []string{"/run/forkd/forkd-sftp"}, Env: []string{"HOME=" + home}, Stderr: os.Stderr}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := sftp.NewClientPipe(out, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ends with %v", err)
		}
	})
	return c
}

func TestFilesOverSFTP(t *testing.T) {
	home := t.TempDir()
	c := start(t, home)
	f, err := c.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("world"), 6); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("hello "), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(home, "a")); err != nil || string(b) != "hello world" {
		t.Errorf("the file has %q, %v", b, err)
	}
	if err := c.Symlink("a", "b"); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(home, "b")); err != nil || to != "a" {
		t.Errorf("the link leads to %q, %v, want the text as sent", to, err)
	}
	if err := c.Chmod("a", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.PosixRename("a", "c"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(home, "c")); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if wd, err := c.Getwd(); err != nil || wd != home {
		t.Errorf("the working directory is %q, %v", wd, err)
	}
}

func TestOtherNamesAreNotTheServer(t *testing.T) {
	for _, name := range []string{"/init", "forkd-agent", "", "/run/forkd/forkd-sftp2"} {
		if _, known := Run(name); known {
			t.Errorf("%q runs the server", name)
		}
	}
}
