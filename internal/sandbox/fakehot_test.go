package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forkd/forkd/internal/vmmctl"
)

// WriteHot and Populate know no pages: the engine must not look at them.
func (f *fake) WriteHot(hot *os.File) (vmmctl.HotResult, error) {
	if f.spoiled("hot-fail") {
		return vmmctl.HotResult{}, errors.New("no pagemap today")
	}
	_, err := hot.WriteString("the hot set")
	return vmmctl.HotResult{Runs: 1}, err
}

func (f *fake) Populate(hot *os.File) (vmmctl.HotResult, error) {
	b := make([]byte, 32)
	n, _ := hot.ReadAt(b, 0)
	if f.spoiled("populate-fail") || string(b[:n]) != "the hot set" {
		return vmmctl.HotResult{}, errors.New("this is no hot set")
	}
	if f.spoiled("populate-die") {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return vmmctl.HotResult{}, os.WriteFile(filepath.Join(f.dir, "populated"), nil, 0o600)
}
