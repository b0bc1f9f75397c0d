package sandbox

import (
	"context"
	"time"
)

// Images is the part of the image store used by the engine.
type Images interface {
	// Image returns the image of that name. It returns ErrNotFound if it does not exist.
	Image(ctx context.Context, name string) (Image, error)
}

// Image describes an image that a parent boots from.
type Image struct {
	Name, Digest     string
	Kernel           string // path of an ELF kernel
	Initrd           string // path; may be empty
	Root             string // path of the root disk, which is read-only
	Upper            string // path of an empty disk, a base layer, for the guest's writes; if empty, they stay in memory
	KernelVersion    string
	Cmdline          string // added to the kernel's command line
	MemoryMiB, VCPUs int
	Start            string // a service's command line, started before the warm-up; may be empty
	Ready            *Ready // readiness condition before the snapshot; may be nil
	Warm             []WarmStep
	// FirstUse is a command line that a child runs to record the working set. It should do the work that children
	// are likely to do first. If empty, a shell is started.
	FirstUse string
}

// Ready is the condition under which a service is ready. One of Port, Command and LogText is set.
type Ready struct {
	Port             int    // TCP port on which a guest program listens
	Command          string // must succeed
	LogFile, LogText string // a text in a file; if LogFile is empty, in Start's output
	Timeout          time.Duration
}

// WarmStep is code to run before the snapshot, either in a language's interpreter, which keeps running, or as a
// program.
type WarmStep struct {
	Language string
	Code     string // if empty, the interpreter is only started
}
