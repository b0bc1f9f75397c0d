package guestinit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// moduleDir contains the modules and a file with their order.
const moduleDir = "/lib/modules/forkd"

// maxModules limits the number of modules in the order file.
const maxModules = 1000

// loadModules loads the modules in the order file. It logs and skips a module that does not load:
// if it was needed, a clearer error follows soon.
func loadModules(dir string, log func(string, ...any)) error {
	b, err := os.ReadFile(filepath.Join(dir, "order"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all are built in
	}
	if err != nil {
		return fmt.Errorf("read module order: %w", err)
	}
	names, err := parseOrder(string(b))
	if err != nil {
		return fmt.Errorf("parse module order: %w", err)
	}
	for _, name := range names {
		if err := loadModule(filepath.Join(dir, name)); err != nil {
			log("load module %s: %v", name, err)
		}
	}
	// The files take up memory of the initramfs and are not needed again.
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove modules: %w", err)
	}
	return nil
}

// parseOrder reads one file name per line. It skips empty lines and # comments.
func parseOrder(text string) ([]string, error) {
	var out []string
	for line := range strings.Lines(text) {
		name := strings.TrimSpace(line)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return nil, fmt.Errorf("%q is no file name", name)
		}
		if out = append(out, name); len(out) > maxModules {
			return nil, fmt.Errorf("more than %d modules", maxModules)
		}
	}
	return out, nil
}

func loadModule(file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
