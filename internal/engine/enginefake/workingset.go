package enginefake

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// WriteWorkingSet and Populate know no pages: the engine must not parse the sets.
func (f *fake) WriteWorkingSet(set *os.File) (vmm.WorkingSetResult, error) {
	if f.faulty("working-set-fail") {
		return vmm.WorkingSetResult{}, errors.New("no pagemap today")
	}
	_, err := set.WriteString("the working set")
	return vmm.WorkingSetResult{Runs: 1}, err
}

func (f *fake) Populate(set *os.File) (vmm.WorkingSetResult, error) {
	b := make([]byte, 32)
	n, _ := set.ReadAt(b, 0)
	if f.faulty("populate-fail") || string(b[:n]) != "the working set" {
		return vmm.WorkingSetResult{}, errors.New("this is no working set")
	}
	if f.faulty("populate-die") {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return vmm.WorkingSetResult{ReadPages: 3}, f.note("populated")
}

// PopulateShell is called for shells only.
func (f *fake) PopulateShell(*os.File) (vmm.WorkingSetResult, error) {
	if f.faulty("populate-shell-fail") {
		return vmm.WorkingSetResult{}, errors.New("no page tables today")
	}
	return vmm.WorkingSetResult{ReadPages: 2}, f.note("shell-populated")
}

// note adds a line to the file of this kind and fake.
func (f *fake) note(what string) error {
	name := filepath.Join(f.tokens, what+"-"+filepath.Base(f.dir))
	w, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = w.WriteString("once\n")
	return err
}
