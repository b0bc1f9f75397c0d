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

// program is one of forkd's own programs, or a tool, that goes into the appliance.
type program struct {
	name     string // of the file, beside the running program
	target   string // in the appliance
	optional bool
}

// spawnTarget is where the program is that the daemon needs for a jail.
const spawnTarget = "usr/bin/forkd-spawn"

var programs = []program{
	{name: "forkd", target: "usr/bin/forkd"},
	{name: "forkd-agent", target: "usr/bin/forkd-agent"},
	{name: "forkd-net", target: "usr/bin/forkd-net"},
	{name: "forkd-vmm", target: "usr/bin/forkd-vmm", optional: true},
	{name: "forkd-spawn", target: spawnTarget, optional: true},
	{name: "forkd-bench", target: "usr/bin/forkd-bench", optional: true},
}

// findPrograms maps targets to files on the host. They are looked for beside
// the running program, where both `make build` and the package put them.
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

// checkJail has a machine that could not serve refused here, where somebody looks.
func checkJail(jail string, programs map[string]string) error {
	if jail == "strict" && programs[spawnTarget] == "" {
		return errors.New("a jail that is strict needs forkd-spawn beside forkd (make build)")
	}
	return nil
}

// digestPrograms is a short name for the programs' content, to tell whether a
// running machine still has the ones on the host.
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
