package appliance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// program is a program of forkd, or a tool, to include in the appliance.
type program struct {
	name     string // file name in the running program's directory
	target   string // path in the appliance
	optional bool
}

// spawnTarget is the path of the program the daemon needs for a jail.
const spawnTarget = "usr/bin/forkd-spawn"

var programs = []program{
	{name: "forkd", target: "usr/bin/forkd"},
	{name: "forkd-agent", target: "usr/bin/forkd-agent"},
	{name: "forkd-net", target: "usr/bin/forkd-net"},
	{name: "forkd-vmm", target: "usr/bin/forkd-vmm", optional: true},
	{name: "forkd-spawn", target: spawnTarget, optional: true},
	{name: "forkd-bench", target: "usr/bin/forkd-bench", optional: true},
}

// findPrograms maps targets to files on the host. It searches the running program's directory, where both `make
// build` and the package put them.
func findPrograms() (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	found := map[string]string{}
	for _, p := range programs {
		path := filepath.Join(filepath.Dir(self), p.name)
		switch _, err := os.Stat(path); {
		case err == nil:
			found[p.target] = path
		case !p.optional || !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("find %s: %w", p.name, err)
		}
	}
	return found, nil
}

// checkJail rejects a machine unable to serve, because the user sees the error here.
func checkJail(jail string, programs map[string]string) error {
	if jail == "strict" && programs[spawnTarget] == "" {
		return errors.New("a jail that is strict needs forkd-spawn beside forkd (make build)")
	}
	return nil
}

// digestPrograms returns a digest of the programs' content, to check whether a running machine has the same
// programs as the host.
func digestPrograms(programs map[string]string) (string, error) {
	total := sha256.New()
	for _, target := range sortedKeys(programs) {
		f, err := os.Open(programs[target])
		if err != nil {
			return "", err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", fmt.Errorf("read %s: %w", programs[target], err)
		}
		fmt.Fprintf(total, "%s %x\n", target, h.Sum(nil))
	}
	return hex.EncodeToString(total.Sum(nil)[:8]), nil
}
