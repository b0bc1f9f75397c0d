package sandbox

import (
	"context"
	"time"
)

// Images is the store of built images, as far as the engine needs it.
type Images interface {
	// Image finds an image by name; ErrNotFound if there is none.
	Image(ctx context.Context, name string) (Image, error)
}

// Image is what a parent boots.
type Image struct {
	Name, Digest     string
	Kernel           string // path of an ELF kernel
	Initrd           string // path; may be empty
	Root             string // path of the root disk, which is never written
	Upper            string // path of the empty disk, a base layer, that takes what the guest writes; empty: memory does
	KernelVersion    string
	Cmdline          string // added to the kernel's command line
	MemoryMiB, VCPUs int
	Start            string // a service's command line, started before the warm-up; empty: none
	Ready            *Ready // what must be up before the snapshot; nil: nothing
	Warm             []WarmStep
	// FirstUse is a command line that does in a child what is likely to be asked of it first, so that
	// what that touches is recorded; empty: a shell is started.
	FirstUse string
}

// Ready is how a service shows that it is up. One of Port, Command and LogText is set.
type Ready struct {
	Port             int    // of TCP, that is listened on in the guest
	Command          string // that succeeds
	LogFile, LogText string // a text in a file; without a file, in what Start prints
	Timeout          time.Duration
}

// WarmStep is code that is run before the snapshot: in a language's interpreter, which stays, or as a program.
type WarmStep struct {
	Language string
	Code     string // may be empty: only start the interpreter
}
