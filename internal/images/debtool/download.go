package debtool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/sys/tempdir"
)

// fetchPrefix begins the name of a download's folder.
const fetchPrefix = ".fetch-"

// Download writes the file of a package of the host's Debian, NAME or NAME=VERSION, with the host's apt, which checks
// it against the signed package lists. The file appears under its name only when it is complete.
func Download(ctx context.Context, run Runner, pkg, to string) error {
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("fetch %s: %w", pkg, err)
	}
	if err := tempdir.Sweep(dir, fetchPrefix, tempdir.RemoveTree); err != nil {
		return fmt.Errorf("fetch %s: %w", pkg, err)
	}
	temp, err := tempdir.Make(dir, fetchPrefix)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", pkg, err)
	}
	defer temp.Remove()
	tmp := temp.Path
	args := []string{"apt-get", "download"}
	if os.Geteuid() == 0 {
		// apt would switch to the user _apt, who cannot write here, and warn.
		args = append(args, "-o", "APT::Sandbox::User=root")
	}
	if _, err := run(ctx, Command{Args: append(args, "--", pkg), Package: "apt", Dir: tmp}); err != nil {
		return fmt.Errorf("fetch %s: %w (if the package lists are old: apt-get update)", pkg, err)
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("fetch %s: apt-get download left %d files, want 1", pkg, len(found))
	}
	if err := os.Rename(found[0], to); err != nil {
		return fmt.Errorf("fetch %s: %w", pkg, err)
	}
	return nil
}
