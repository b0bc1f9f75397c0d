package engine

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forkd/forkd/internal/vmm"
)

// WriteHot and Populate know no pages: the engine must not look at them.
func (f *fake) WriteHot(hot *os.File) (vmm.HotResult, error) {
	if f.spoiled("hot-fail") {
		return vmm.HotResult{}, errors.New("no pagemap today")
	}
	_, err := hot.WriteString("the working set")
	return vmm.HotResult{Runs: 1}, err
}

func (f *fake) Populate(hot *os.File) (vmm.HotResult, error) {
	b := make([]byte, 32)
	n, _ := hot.ReadAt(b, 0)
	if f.spoiled("populate-fail") || string(b[:n]) != "the working set" {
		return vmm.HotResult{}, errors.New("this is no working set")
	}
	if f.spoiled("populate-die") {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return vmm.HotResult{}, os.WriteFile(filepath.Join(f.tokens, "populated-"+filepath.Base(f.dir)), nil, 0o600)
}
