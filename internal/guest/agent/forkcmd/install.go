package forkcmd

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

//go:embed forkd.py
var module string

// Places in the guest. The folder is in memory and so never part of the image.
const (
	folder     = "/run/forkd"
	moduleFile = folder + "/python/forkd.py"
	binaries   = "/usr/local/bin"
)

// Program is the agent's binary, reachable for every user of the guest after Install.
const Program = folder + "/forkd-agent"

// moduleDirs are default directories of Python: Debian's, and those of an interpreter built for
// /usr/local or by other distributions.
var moduleDirs = []string{
	"/usr/lib/python3/dist-packages", "/usr/local/lib/python3.*/site-packages", "/usr/lib/python3.*/site-packages",
}

// Install puts the commands and the module into the guest at boot. A file of the image with one of
// the names stays and is logged.
func Install(log func(string, ...any)) error {
	if err := os.MkdirAll(filepath.Dir(moduleFile), 0o755); err != nil {
		return fmt.Errorf("make folder for commands: %w", err)
	}
	if err := bindSelf(Program); err != nil {
		return err
	}
	return installLinks(log)
}

// Replace does the same for a program that was written to the folder and took over from the installed
// one. Commands that run keep the old program.
func Replace(log func(string, ...any)) error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	if filepath.Dir(self) != folder {
		return fmt.Errorf("the program is %s, want it in %s", self, folder)
	}
	err = unix.Unmount(Program, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) { // not mounted after an update
		return fmt.Errorf("unmount the old program: %w", err)
	}
	if err := os.Rename(self, Program); err != nil {
		return fmt.Errorf("install the new program: %w", err)
	}
	return installLinks(log)
}

func installLinks(log func(string, ...any)) error {
	if err := os.WriteFile(moduleFile, []byte(module), 0o644); err != nil {
		return fmt.Errorf("write Python module: %w", err)
	}
	if err := os.MkdirAll(binaries, 0o755); err != nil {
		return fmt.Errorf("make folder for commands: %w", err)
	}
	var errs []error
	for _, name := range []string{forkName, waitName, exitName, tokenName} {
		errs = append(errs, link(Program, filepath.Join(binaries, name), log))
	}
	for _, pattern := range moduleDirs {
		dirs, _ := filepath.Glob(pattern) // errors only on a bad pattern
		for _, dir := range dirs {
			errs = append(errs, link(moduleFile, filepath.Join(dir, "forkd.py"), log))
		}
	}
	return errors.Join(errs...)
}

// bindSelf makes this program reachable for every user. Its own file is in the initramfs, below the
// root, and a copy would take up memory.
func bindSelf(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("make mount point for commands: %w", err)
	}
	f.Close()
	if err := unix.Mount("/proc/self/exe", path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount program for commands: %w", err)
	}
	return nil
}

func link(to, name string, log func(string, ...any)) error {
	err := os.Symlink(to, name)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if old, err := os.Readlink(name); err != nil || old != to { // equal after another boot of the same disk
		log("%s is the image's own and stays", name)
	}
	return nil
}
