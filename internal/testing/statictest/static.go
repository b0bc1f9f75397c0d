package statictest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
)

// Linked reports whether this program is linked to a C library.
func Linked() bool {
	b, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(b), "/ld-")
}

// Main runs the tests of a package in a program without a C library, and ends with their exit code, if
// this one has a C library. Else it returns, as it does where that cannot be: with -race or -cover, or
// without a go command.
func Main() {
	if !strings.HasSuffix(os.Args[0], ".test") || !Linked() || bound() {
		return
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return
	}
	code, err := again(tool)
	if err != nil {
		fmt.Fprintln(os.Stderr, "statictest:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

// bound reports whether this program was built in a way that wants the C library, or is not to be lost.
func bound() bool {
	if testing.CoverMode() != "" {
		return true
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return true
	}
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" || s.Key == "-msan" || s.Key == "-asan" {
			return true
		}
	}
	return false
}

// again builds the package of the working directory, which is that of its tests, and runs them.
func again(tool string) (code int, err error) {
	dir, err := os.MkdirTemp("", "static") // not under /root: tests run it as other users
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	binary := filepath.Join(dir, filepath.Base(os.Args[0]))
	build := exec.Command(tool, "test", "-c", "-o", binary, ".") // #nosec G702 -- go test chose the name
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the tests without a C library: %w\n%s", err, out)
	}
	return run(binary)
}

// run is the tests' process in the eyes of go test, whose signals it passes on.
func run(binary string) (code int, err error) {
	cmd := exec.Command(binary, os.Args[1:]...) // #nosec G702 -- this very test, with its own arguments
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, os.Interrupt)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	signal.Stop(signals)
	close(signals)
	<-done
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code >= 0 {
			return code, nil
		}
	}
	return 0, err
}
