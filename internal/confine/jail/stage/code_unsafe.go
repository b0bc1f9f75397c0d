//go:build amd64

package stage

import (
	"fmt"
	"unsafe"
)

//lint:ignore U1000 bounds takes its address, in assembly
func run()

//lint:ignore U1000 as run
func runEnd()

// bounds returns the addresses of run and of the code after it.
func bounds() (begin, end uintptr)

// code returns the instructions of run, which make the calls.
func code() ([]byte, error) {
	begin, end := bounds()
	if end <= begin || end-begin > page-entry {
		return nil, fmt.Errorf("%w: its code is of %d bytes", ErrScript, end-begin)
	}
	// SAFETY: these are mapped instructions of this program, which never change.
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), begin)), end-begin), nil
}
